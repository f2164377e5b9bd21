import { microOf } from './micro.ts'
import type { ProjectedEvent, StatelessProjection } from './projection.ts'
import { keepNewest, type RowOf, type Table, upsert } from './rows.ts'
import { organizationOf } from './usage.ts'

/** Calls and credits, by minute for two days and by hour for 90 days, for the overview and for charts of short ranges. */

/** PostgreSQL intervals. They are counted back from the newest bucket. */
const minutesKept = '2 days'
const hoursKept = '90 days'
const minutesKeptMs = 2 * 86_400_000

const columns = {
  at: 'timestamptz not null',
  organization_id: 'text not null',
  key_id: 'text not null',
  // 'any' for calls that a rate limit refused, because these are not counted by capability.
  capability: 'text not null',
  outcome: 'text not null',
  // The error code, or empty.
  code: 'text not null',
  calls: 'bigint not null',
  charged_micro: 'bigint not null',
} as const satisfies Table['columns']
const key = ['at', 'organization_id', 'key_id', 'capability', 'outcome', 'code'] as const

const minutesTable = { name: 'usage_minutes', columns, key } as const satisfies Table
const hoursTable = {
  name: 'usage_hours',
  columns,
  key,
  indexes: ['create index on $table (organization_id, at)', "create index on $table (at) where code <> ''"],
} as const satisfies Table

type Bucket = { -readonly [Column in keyof typeof columns]: RowOf<typeof hoursTable>[Column] } & {
  calls: number
  charged_micro: bigint
}

/**
 * A bucket is deleted when it is older than the newest bucket by more than the table's interval. If an amount for a deleted bucket
 * arrives later, it is deleted too, so that the rows do not depend on how events are divided into batches.
 */
export const usageBuckets: StatelessProjection = {
  name: 'usage_buckets',
  version: 1,
  prefixes: ['ledger-'],
  money: false,
  tables: [minutesTable, hoursTable],
  fold: (events) => {
    const minutes = new Map<string, Bucket>()
    let call: { readonly id: string; readonly bucket: Bucket } | null = null
    for (const event of events) {
      if (event.type === 'CreditCharged' && call !== null && isChargeOf(call, event)) {
        call.bucket.charged_micro += microOf(event.data.amount)
        continue
      }
      for (const counted of bucketsOf(event)) {
        const bucket = add(minutes, counted)
        if (event.type === 'KeyUsed') call = { id: event.id, bucket }
      }
    }
    if (minutes.size === 0) return []
    const hours = new Map<string, Bucket>()
    let newest = ''
    for (const bucket of minutes.values()) {
      if (bucket.at > newest) newest = bucket.at
      add(hours, { ...bucket, at: `${bucket.at.slice(0, 13)}:00Z` })
    }
    // Without this limit, a rebuild would write the minutes of several years and then delete them.
    const oldest = new Date(Date.parse(newest) - minutesKeptMs).toISOString()
    const sums = {
      calls: 't.calls + excluded.calls',
      charged_micro: 't.charged_micro + excluded.charged_micro',
    }
    const kept = [...minutes.values()].filter(({ at }) => at >= oldest.slice(0, 16))
    return [
      upsert(minutesTable, kept, sums),
      keepNewest(minutesTable, 'at', minutesKept),
      upsert(hoursTable, [...hours.values()], sums),
      keepNewest(hoursTable, 'at', hoursKept),
    ]
  },
}

/** Whether a charge belongs to the bucket of the call before it, so that the bucket does not have to be looked up again. */
const isChargeOf = (
  { id, bucket: { at, key_id, capability, outcome, code } }: { id: string; bucket: Bucket },
  { data: { rule }, metadata }: Extract<ProjectedEvent, { type: 'CreditCharged' }>,
): boolean =>
  metadata.causation_id === id &&
  outcome === 'answered' &&
  code === '' &&
  rule.startsWith(`${capability}.`) &&
  metadata.actor === `key:${key_id}` &&
  minuteOf(metadata.effective_at) === at

/**
 * The amounts that an event adds, by bucket. A call is counted with its own event. Its credits are counted with its charge, which can be
 * in another batch.
 */
const bucketsOf = (event: ProjectedEvent): Bucket[] => {
  const organization_id = organizationOf(event)
  const { effective_at, actor } = event.metadata
  switch (event.type) {
    case 'KeyUsed': {
      const { key_id, capability, outcome, code = '' } = event.data
      const call = { key_id, capability, outcome, code, calls: 1, charged_micro: 0n }
      return [{ at: minuteOf(effective_at), organization_id, ...call }]
    }
    case 'CreditCharged': {
      const [capability = ''] = event.data.rule.split('.')
      const charged = { calls: 0, charged_micro: microOf(event.data.amount) }
      const call = { key_id: actor.replace(/^key:/, ''), capability, outcome: 'answered', code: '' }
      return [{ at: minuteOf(effective_at), organization_id, ...call, ...charged }]
    }
    case 'RateLimitExceeded': {
      const { key_id, policy, window, count: calls } = event.data
      const at = minuteOf(policy === 'day' ? withinDay(effective_at, window) : window)
      const limited = { capability: 'any', outcome: 'rate_limited', code: 'RATE_001' }
      return [{ at, organization_id, key_id, ...limited, calls, charged_micro: 0n }]
    }
    case 'CallsRefused': {
      const { key_id, outcome, code, window, counts } = event.data
      const refused = { at: minuteOf(window), organization_id, key_id, outcome, code, charged_micro: 0n }
      return counts.map(({ capability, count: calls }) => ({ ...refused, capability, calls }))
    }
    default:
      return []
  }
}

const minuteOf = (instant: string): string => `${instant.slice(0, 16)}Z`

/** The instant at which calls of a day were counted, or the last minute of the day if that instant is after the day. */
const withinDay = (instant: string, window: string): string => {
  const day = window.slice(0, 10)
  return instant.startsWith(day) ? instant : `${day}T23:59`
}

/** Adds an amount to the bucket with the same key, and returns that bucket. */
const add = (buckets: Map<string, Bucket>, bucket: Bucket): Bucket => {
  const { at, organization_id, key_id, capability, outcome, code } = bucket
  const cell = `${at} ${organization_id} ${key_id} ${capability} ${outcome} ${code}`
  const before = buckets.get(cell)
  if (before === undefined) {
    buckets.set(cell, bucket)
    return bucket
  }
  before.calls += bucket.calls
  before.charged_micro += bucket.charged_micro
  return before
}
