import type { Query, StatelessProjection } from './projection.ts'
import { type RowOf, type Table, upsert } from './rows.ts'

const usageTable = {
  name: 'key_usage',
  columns: {
    key_id: 'text not null',
    day: 'date not null',
    capability: 'text not null',
    outcome: 'text not null',
    calls: 'bigint not null',
  },
  key: ['key_id', 'day', 'capability', 'outcome'],
} as const satisfies Table

const lastUsedTable = {
  name: 'key_last_used',
  columns: { key_id: 'text not null', last_used_at: 'timestamptz not null' },
  key: ['key_id'],
} as const satisfies Table

/** The usage of each key: its last use, and its calls by UTC day, capability and outcome. */
export const keyUsage: StatelessProjection = {
  name: 'key_usage',
  version: 1,
  prefixes: ['ledger-'],
  money: false,
  tables: [usageTable, lastUsedTable],
  fold: (events) => {
    const usage = new Map<string, UsageRow>()
    const lastUsed = new Map<string, string>()
    for (const event of events)
      if (event.type === 'KeyUsed') {
        const { key_id, capability, outcome } = event.data
        const at = event.metadata.effective_at
        add(usage, { key_id, day: dayOf(at), capability, outcome, calls: 1 })
        if (at > (lastUsed.get(key_id) ?? '')) lastUsed.set(key_id, at)
      } else if (event.type === 'RateLimitExceeded') {
        const { key_id, window, count } = event.data
        add(usage, {
          key_id,
          day: dayOf(window),
          capability: 'any',
          outcome: 'rate_limited',
          calls: count,
        })
      } else if (event.type === 'CallsRefused') {
        const { key_id, outcome, window, counts } = event.data
        for (const { capability, count } of counts)
          add(usage, { key_id, day: dayOf(window), capability, outcome, calls: count })
      }
    return [
      upsert(usageTable, [...usage.values()], { calls: 't.calls + excluded.calls' }),
      upsert(
        lastUsedTable,
        [...lastUsed].map(([key_id, last_used_at]) => ({ key_id, last_used_at })),
        { last_used_at: 'greatest(t.last_used_at, excluded.last_used_at)' },
      ),
    ]
  },
}

type UsageRow = RowOf<typeof usageTable> & { calls: number }

const dayOf = (instant: string): string => instant.slice(0, 10)

const add = (usage: Map<string, UsageRow>, row: UsageRow): void => {
  const cell = `${row.key_id} ${row.day} ${row.capability} ${row.outcome}`
  const sum = usage.get(cell)
  if (sum === undefined) usage.set(cell, row)
  else sum.calls += row.calls
}

/** The time at which a key was last used. Returns no row for an unused key. */
export const lastUsedOf = (keyId: string): Query<{ last_used_at: Date }> => ({
  text: 'select last_used_at from key_last_used where key_id = $1',
  values: [keyId],
})
