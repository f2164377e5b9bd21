import { InputFault } from '../administration/input.ts'
import { organizationsOf } from '../administration/ledgers/ledgers.ts'
import { reconcileLedgers } from '../administration/ledgers/reconcile.ts'
import { recordReconciled } from '../administration/ledgers/reconciliations.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { formatCredits } from '../billing/money.ts'
import { isMonth, monthAfter, monthStart } from '../billing/months.ts'
import type { Reconciled } from '../ledger/check/reconcile.ts'
import type { Command } from './command.ts'
import { table } from './table.ts'

const rangeOf = (month: string): { fromMs: number; toMs: number } => {
  if (!isMonth(month)) throw new InputFault('month', `"${month}" is not a month such as 2026-11`)
  return { fromMs: Date.parse(monthStart(month)), toMs: Date.parse(monthStart(monthAfter(month))) }
}

export const reconcileCommand: Command = {
  name: 'ledger reconcile',
  summary:
    'compare the log, the read models and the tariff; names each difference; exit code 1 if there is one',
  parameters: [
    { name: 'org', help: 'of this organization only (default: all)' },
    { name: 'month', help: 'what was effective in this month (UTC), such as 2026-11 (default: all)' },
  ],
  changes: {
    of: 'records',
    asks: 'never',
    left: 'Nothing was recorded, or the whole result.',
    plan: async (_, given) => {
      const [month, organization] = [given.text('month'), given.text('org')]
      if (month !== undefined) rangeOf(month)
      const recorded = month === undefined && organization === undefined
      return {
        says: [
          `Compare the log, the read models and the tariff of ${organization ?? 'every organization'}${recorded ? ', and record the result' : '; nothing is recorded'}.`,
        ],
      }
    },
  },
  run: async ({ foundation, logger, progress }, given) => {
    const month = given.text('month')
    const range = month === undefined ? undefined : rangeOf(month)
    const open = await foundation()
    const organization = given.text('org')
    await catchUp(open, logger)
    const ledgers = await reconcileLedgers(open, {
      organizations: organization === undefined ? await organizationsOf(open) : [organization],
      ...(range === undefined ? {} : { range }),
      onProgress: (organizationId, events) => progress(`${organizationId}: ${events} events`),
    })
    if (organization === undefined && range === undefined)
      await recordReconciled(open, ledgers, { whole: true, ...open.operator })
    const ok = ledgers.every(({ differences }) => differences === 0)
    return {
      json: { ok, ledgers: ledgers.map(ledgerJson) },
      failed: !ok,
      lines: ledgers.flatMap(ledgerLines),
    }
  },
}

const linesOf = ({ sums }: Reconciled) =>
  [...sums].map(([sku, { log, projections, tariff }]) => ({
    sku,
    log: formatCredits(log),
    projections: formatCredits(projections),
    tariff: sku.startsWith('(') ? null : formatCredits(tariff),
  }))

const ledgerJson = (ledger: Reconciled) => ({
  organization_id: ledger.organizationId,
  through_revision: ledger.through,
  calls: ledger.calls,
  sums: linesOf(ledger),
  differences: ledger.differences,
  named: ledger.named,
})

const ledgerLines = (ledger: Reconciled): string[] => [
  `${ledger.differences === 0 ? 'ok      ' : 'DIFFERS '}${ledger.organizationId}  ${ledger.calls} calls up to revision ${ledger.through}`,
  ...table(linesOf(ledger)).map((line) => `  ${line}`),
  ...ledger.named.map((one) => `  ${one}`),
  ...(ledger.differences > ledger.named.length
    ? [`  and ${ledger.differences - ledger.named.length} more`]
    : []),
]
