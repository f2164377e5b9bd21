import { microOf } from './micro.ts'
import type { ProjectedEvent, Query } from './projection.ts'
import type { RowOf, Table } from './rows.ts'

/** Calls and credits by UTC day, key, capability, outcome and rule. The table is a part of the projection `ledger_index`. */

export const usageTable = {
  name: 'usage_days',
  columns: {
    organization_id: 'text not null',
    day: 'date not null',
    key_id: 'text not null',
    capability: 'text not null',
    outcome: 'text not null',
    // The rule that priced the calls or made them free. Empty: no rule was evaluated.
    rule: 'text not null',
    calls: 'bigint not null',
    charged_micro: 'bigint not null',
  },
  key: ['organization_id', 'day', 'key_id', 'capability', 'outcome', 'rule'],
  indexes: ['create index on $table (day)'],
} as const satisfies Table

export type UsageRow = RowOf<typeof usageTable> & { calls: number; charged_micro: bigint }

export const organizationOf = ({ stream }: ProjectedEvent): string => stream.slice('ledger-'.length)

/**
 * A charged call is counted with its charge, which contains the rule, because the two events can be in different batches. The actor of
 * the charge is the key, and the rule begins with the name of the capability.
 */
export const usageOf = (event: ProjectedEvent): UsageRow[] => {
  const organization_id = organizationOf(event)
  const at = { organization_id, day: event.metadata.effective_at.slice(0, 10) }
  switch (event.type) {
    case 'KeyUsed': {
      const { key_id, capability, outcome, free_by } = event.data
      if (free_by === undefined) return []
      return [{ ...at, key_id, capability, outcome, rule: free_by.rule, calls: 1, charged_micro: 0n }]
    }
    case 'CreditCharged': {
      const { rule, amount } = event.data
      const key_id = event.metadata.actor.replace(/^key:/, '')
      const [capability = ''] = rule.split('.')
      const charged_micro = microOf(amount)
      return [{ ...at, key_id, capability, outcome: 'answered', rule, calls: 1, charged_micro }]
    }
    case 'RateLimitExceeded': {
      const { key_id, window, count } = event.data
      const limited = { capability: 'any', outcome: 'rate_limited', rule: '', charged_micro: 0n }
      return [{ organization_id, day: window.slice(0, 10), key_id, ...limited, calls: count }]
    }
    case 'CallsRefused': {
      const { key_id, outcome, window, counts, free_by } = event.data
      const refused = { key_id, outcome, rule: free_by.rule, charged_micro: 0n }
      return counts.map(({ capability, count }) => ({
        organization_id,
        day: window.slice(0, 10),
        ...refused,
        capability,
        calls: count,
      }))
    }
    default:
      return []
  }
}

export const addUsage = (usage: Map<string, UsageRow>, row: UsageRow): void => {
  const { organization_id, day, key_id, capability, outcome, rule } = row
  const cell = `${organization_id} ${day} ${key_id} ${capability} ${outcome} ${rule}`
  const sum = usage.get(cell)
  if (sum === undefined) usage.set(cell, row)
  else {
    sum.calls += row.calls
    sum.charged_micro += row.charged_micro
  }
}

/**
 * The position up to which an organization's rows are complete. If they are halted at an event, this is the position before it.
 */
const standing = `(select least(position, (select position - 1 from halted_streams
                                    where projection = 'ledger_index' and stream = 'ledger-' || $1))::text
                     from projection_checkpoints where name = 'ledger_index')`

export const usageGroups = ['day', 'capability', 'key', 'rule'] as const
export type UsageGroup = (typeof usageGroups)[number]

const groupColumns = { day: 'day::text', capability: 'capability', key: 'key_id', rule: 'rule' } as const

export type UsageGroupRow = {
  /** Null if there was no usage, in which case this is the only row. */
  name: string | null
  calls: string
  answered: string
  refused: string
  failed: string
  rate_limited: string
  charged_micro: string
  position: string | null
}

/** An organization's usage between two days (inclusive), by group, and the position up to which it is complete. Returns at least one row. */
export const usageBetween = (
  organizationId: string,
  { from, to, groupBy, max }: { from: string; to: string; groupBy: UsageGroup; max: number },
): Query<UsageGroupRow> => {
  const calls = (outcome: string): string =>
    `coalesce(sum(calls) filter (where outcome = '${outcome}'), 0)::text as ${outcome}`
  return {
    text: `with used as (
             select ${groupColumns[groupBy]} as name, sum(calls)::text as calls, ${calls('answered')}, ${calls('refused')},
                    ${calls('failed')}, ${calls('rate_limited')}, sum(charged_micro)::text as charged_micro
               from usage_days where organization_id = $1 and day between $2::date and $3::date
              group by 1 order by 1 limit $4)
           select used.*, at.position from (select ${standing} as position) at left join used on true order by used.name`,
    values: [organizationId, from, to, max],
  }
}
