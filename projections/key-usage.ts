import { columnsOf, type Query, type StatelessProjection } from './projection.ts'

/** How much each key is used: when last, and how many calls per UTC day, capability and outcome. */
export const keyUsage: StatelessProjection = {
  name: 'key_usage',
  version: 1,
  prefixes: ['ledger-'],
  money: false,
  tables: [
    {
      name: 'key_usage',
      columns: `
        key_id text not null, day date not null, capability text not null, outcome text not null,
        calls bigint not null, primary key (key_id, day, capability, outcome)`,
    },
    {
      name: 'key_last_used',
      columns: 'key_id text primary key, last_used_at timestamptz not null',
    },
  ],
  fold: (events, table) => {
    const calls = new Map<string, number>()
    const lastUsed = new Map<string, string>()
    for (const event of events) {
      if (event.type === 'KeyUsed') {
        const at = event.metadata.effective_at
        const { key_id, capability, outcome } = event.data
        const cell = `${key_id} ${at.slice(0, 10)} ${capability} ${outcome}`
        calls.set(cell, (calls.get(cell) ?? 0) + 1)
        if (at > (lastUsed.get(key_id) ?? '')) lastUsed.set(key_id, at)
      } else if (event.type === 'RateLimitExceeded') {
        const cell = `${event.data.key_id} ${event.data.window.slice(0, 10)} any rate_limited`
        calls.set(cell, (calls.get(cell) ?? 0) + event.data.count)
      } else if (event.type === 'CallsRefused') {
        const { key_id, outcome, window, counts } = event.data
        for (const { capability, count } of counts) {
          const cell = `${key_id} ${window.slice(0, 10)} ${capability} ${outcome}`
          calls.set(cell, (calls.get(cell) ?? 0) + count)
        }
      }
    }
    if (calls.size === 0) return []
    return [
      {
        text: `insert into ${table('key_usage')} as t (key_id, day, capability, outcome, calls)
               select a, b::date, c, d, e::bigint
               from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as u (a, b, c, d, e)
               on conflict (key_id, day, capability, outcome) do update set calls = t.calls + excluded.calls`,
        columns: columnsOf(
          [...calls].map(([cell, count]) => [...cell.split(' '), String(count)]),
          5,
        ),
      },
      {
        text: `insert into ${table('key_last_used')} as t (key_id, last_used_at)
               select a, b::timestamptz from unnest($1::text[], $2::text[]) as u (a, b)
               on conflict (key_id) do update set last_used_at = greatest(t.last_used_at, excluded.last_used_at)`,
        columns: columnsOf([...lastUsed], 2),
      },
    ]
  },
}

/** When a key was last used; no row for a key never used. */
export const lastUsedOf = (keyId: string): Query<{ last_used_at: Date }> => ({
  text: 'select last_used_at from key_last_used where key_id = $1',
  values: [keyId],
})
