import type { Meters } from '../call/capability.ts'

/** What the event log says of the last reconciliation. */
export type LastReconciliation = { readonly at: string; readonly differences: number }

export const reconciliationGauges = (
  meters: Meters,
  last: () => Promise<LastReconciliation | null>,
): void => {
  const gauge = (name: string, help: string, value: (last: LastReconciliation) => number): void =>
    meters.gauge({ name: `reconciliation_${name}`, help }, async () => {
      // Unknown while the log is away: left out, like the lags.
      const found = await last().catch(() => null)
      return found === null ? [] : [{ value: value(found) }]
    })
  gauge('age_seconds', 'Since ledgers were last compared with read models and tariff', ({ at }) =>
    Math.max(0, (Date.now() - Date.parse(at)) / 1_000),
  )
  gauge('differences', 'What differed then: must be 0', ({ differences }) => differences)
}
