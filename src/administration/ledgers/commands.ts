import { z } from 'zod'
import { creditsText, formatCredits } from '../../billing/money.ts'
import { monthAfter, monthStart } from '../../billing/months.ts'
import { agreedNowMs } from '../../foundation/clocks.ts'
import type { Reconciled } from '../../ledger/check/reconcile.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { requestIdsIn, reverseCalls } from '../credits/reverse-calls.ts'
import { type Context, command, query, type Sections, titled } from '../declare.ts'
import { flag, id, manyLines, month, number, organization, reason } from '../fields.ts'
import { InputFault } from '../input.ts'
import { type ClosedMonth, closeMonth, requireClosable } from '../months/close-month.ts'
import { monthOf } from '../months/statements.ts'
import { catchUp } from '../projections/catch-up.ts'
import {
  acknowledgeFault,
  organizationsOf,
  progressText,
  type VerifiedLedger,
  verifyLedgers,
} from './ledgers.ts'
import { reconcileLedgers } from './reconcile.ts'
import { recordReconciled } from './reconciliations.ts'

const onlyOf = () => organization({ help: 'only this organization (default: all)' }).optional()

/** With more ledgers than this, people see only the ledgers that need attention. Programs see all of them. */
const shownMax = 1_000

/** The ledgers that people see, under their heading. `isFine` ledgers are left out if there are too many. */
const shownOf = <One>(ledgers: readonly One[], isFine: (one: One) => boolean): [string, readonly One[]] =>
  ledgers.length <= shownMax
    ? ['Ledgers', ledgers]
    : ['Ledgers that need attention', ledgers.filter((one) => !isFine(one))]

const verify = query({
  name: 'ledger verify',
  action: 'finance.read',
  summary:
    'verify the hash chains and charges of ledgers; every rule is checked, and the first broken event is shown',
  input: z.object({ organization: onlyOf() }),
  anyHistory: true,
  long: 'repeatable',
  run: async ({ foundation, progress }, { organization: organizationId }) => {
    const { ok, readModels, ledgers } = await verifyLedgers(foundation, {
      organizationId,
      onProgress: (read) => progress(progressText(read)),
    })
    return {
      json: { ok, read_models: readModels, ledgers: ledgers.map(verdictJson) },
      failed: !ok,
      sections: verdictSections({ ok, readModels, ledgers }),
    }
  },
})

const isWithoutFinding = ({ ok, known }: VerifiedLedger): boolean => ok && known.length === 0

const verdictJson = (ledger: VerifiedLedger) => ({
  organization_id: ledger.organizationId,
  ok: ledger.ok,
  events: ledger.events,
  digest: ledger.digest,
  balance: formatCredits(ledger.balance),
  fault: ledger.fault,
  known_faults: ledger.known,
  contradicted: ledger.contradicted.map(({ priceBookVersion, charges, first }) => ({
    price_book_version: priceBookVersion,
    charges,
    first: { revision: first.revision, request_id: first.requestId, charge_id: first.chargeId },
  })),
  account_row: ledger.accountRow,
})

const verdictSections = ({
  ok,
  readModels,
  ledgers,
}: {
  readonly ok: boolean
  readonly readModels: string | null
  readonly ledgers: readonly VerifiedLedger[]
}): Sections => {
  const [heading, shown] = shownOf(ledgers, isWithoutFinding)
  return [
    {
      ok,
      ledgers: ledgers.length,
      read_models: readModels,
      ...(ledgers.some(({ accountRow }) => accountRow === 'changed') && {
        note: 'A changed row in accounts concerns only pages and lists: "projection rebuild accounts" repairs it.',
      }),
    },
    ...titled(heading, shown.map(verdictJson)),
  ]
}

const asVerifyNames = { help: 'as shown by "ledger verify"' }

const acknowledge = command({
  name: 'ledger acknowledge',
  action: 'ledgers.change',
  summary: 'acknowledge a fault that "ledger verify" found; any other fault still raises an alarm',
  input: z.object({
    organization: organization(),
    revision: number({ label: 'Revision', ...asVerifyNames }, { min: 0, max: Number.MAX_SAFE_INTEGER }),
    digest: id({ label: 'Digest', ...asVerifyNames }, /^[\w-]{43}$/, 'rXk1…, of 43 characters'),
    reason: reason(),
  }),
  anyHistory: true,
  changes: { of: 'records', asks: 'always' },
  plan: async (_, { organization: id, revision, digest }) =>
    `Record that the fault at revision ${revision} of ${id}, digest ${digest}, is known: it no longer raises an alarm.`,
  run: async ({ foundation, operator: { actor } }, { organization: id, revision, digest, reason: why }) => {
    await acknowledgeFault(foundation, { organizationId: id, revision, digest, reason: why, actor })
    return {
      json: { organization_id: id, revision, digest, reason: why },
      lines: [`recorded: the fault at revision ${revision} of ${id} is known`],
    }
  },
})

const reconcile = command({
  name: 'ledger reconcile',
  action: 'ledgers.change',
  long: 'repeatable',
  summary: 'compare the log, the read models and the tariff, and show each difference',
  input: z.object({
    organization: onlyOf(),
    month: month({
      label: 'Month (UTC)',
      help: 'only movements that were effective in this month, such as 2026-11 (default: all)',
    }).optional(),
  }),
  changes: { of: 'records', asks: 'never' },
  plan: async (_, { organization: id, month: of }) =>
    `Compare the log, the read models and the tariff of ${id ?? 'every organization'}${id === undefined && of === undefined ? ', and record the result' : '; nothing is recorded'}.`,
  run: async ({ foundation, logger, operator, progress }, { organization: id, month: of }) => {
    await catchUp(foundation, logger)
    const range =
      of === undefined
        ? {}
        : { range: { fromMs: Date.parse(monthStart(of)), toMs: Date.parse(monthStart(monthAfter(of))) } }
    const ledgers = await reconcileLedgers(foundation, {
      organizations: id === undefined ? await organizationsOf(foundation) : [id],
      ...range,
      onProgress: (read) => progress(progressText(read)),
    })
    if (id === undefined && of === undefined)
      await recordReconciled(foundation, ledgers, { whole: true, actor: operator.actor })
    const ok = ledgers.every(({ differences }) => differences === 0)
    return {
      json: { ok, ledgers: ledgers.map(reconciledJson) },
      failed: !ok,
      sections: reconciledSections(ledgers, ok),
    }
  },
})

const sumsOf = ({ sums }: Reconciled) =>
  [...sums].map(([sku, { log, projections, tariff }]) => ({
    sku,
    log: formatCredits(log),
    projections: formatCredits(projections),
    tariff: sku.startsWith('(') ? null : formatCredits(tariff),
  }))

const reconciledJson = (ledger: Reconciled) => ({
  organization_id: ledger.organizationId,
  through_revision: ledger.through,
  calls: ledger.calls,
  sums: sumsOf(ledger),
  differences: ledger.differences,
  named: ledger.named,
})

const reconciledSections = (ledgers: readonly Reconciled[], ok: boolean): Sections => {
  const [heading, shown] = shownOf(ledgers, ({ differences }) => differences === 0)
  return [
    { ok, ledgers: ledgers.length },
    ...titled(
      heading,
      shown.map(reconciledJson).map(({ sums: _, named: __, ...ledger }) => ledger),
    ),
    ...titled(
      'Sums in credits',
      shown.flatMap((one) => sumsOf(one).map((sum) => ({ organization_id: one.organizationId, ...sum }))),
    ),
    ...titled(
      'Differences',
      shown.flatMap(({ organizationId: organization_id, named }) =>
        named.map((difference) => ({ organization_id, difference })),
      ),
    ),
  ]
}

const closing = z.object({
  organization: organization({ help: 'organization id; not with --all' }).optional(),
  month: month({ label: 'Month (UTC)', help: 'such as 2026-11' }).optional(),
  all: flag({ label: 'All', help: 'every organization' }),
})

/** With `--all` and a single value on the command line, the value is the month. */
const closingOf = ({ organization: id, month: of, all }: z.output<typeof closing>) => {
  const wanted = of ?? (all && id !== undefined ? monthOf('month', id) : undefined)
  if (wanted === undefined) throw new InputFault('month', 'a month is required, such as 2026-11')
  if (all && of !== undefined && id !== undefined)
    throw new InputFault('org', 'give an organization or --all, not both')
  if (!all && id === undefined) throw new InputFault('org', 'give an organization, or --all')
  return { month: wanted, organizationId: all || id === undefined ? null : id }
}

const close = command({
  name: 'ledger close',
  action: 'ledgers.change',
  long: 'repeatable',
  summary: "make a month's statement final; later changes are corrections in the open month",
  input: closing,
  changes: { of: 'records', asks: 'always' },
  plan: async ({ foundation }, input) => {
    const { month: of, organizationId } = closingOf(input)
    requireClosable(of, await agreedNowMs(foundation.pool, 'no month is closed'))
    const whose =
      organizationId ?? `all ${(await organizationsOf(foundation)).length} organizations, one after the other`
    return [
      `Close ${of} of ${whose}: lots that expired in it are written off, its statement becomes final, and later changes are corrections in the open month. This cannot be undone.`,
      ...(organizationId === null
        ? ['Organizations with an earlier open month are skipped and listed.']
        : []),
    ]
  },
  run: async ({ foundation, operator: { actor }, progress }, input) => {
    const { month: of, organizationId } = closingOf(input)
    const closeOne = async (id: string, { nth, of: all } = { nth: 1, of: 1 }) => {
      const closed = await closeMonth(foundation, {
        organizationId: id,
        month: of,
        actor,
        nowMs: await agreedNowMs(foundation.pool, 'no month is closed'),
        onProgress: (events) => progress(progressText({ organizationId: id, events, nth, of: all })),
      })
      return { organization_id: id, ...outcomeOf(closed) }
    }
    if (organizationId !== null) return { json: await closeOne(organizationId) }
    const outcomes: Awaited<ReturnType<typeof closeOne>>[] = []
    const organizations = await organizationsOf(foundation)
    for (const [n, id] of organizations.entries())
      try {
        outcomes.push(await closeOne(id, { nth: n + 1, of: organizations.length }))
      } catch (error) {
        // After a refusal, the command continues with the other organizations. Any other error ends the command, which can be run again.
        if (!(error instanceof CommandRefused)) throw error
        outcomes.push({ organization_id: id, ...notClosed('refused', error.message) })
      }
    return {
      json: outcomes,
      sections: sectionsOf(outcomes),
      failed: outcomes.some(({ state }) => state === 'refused'),
    }
  },
})

type Outcome = { readonly organization_id: string } & ReturnType<typeof outcomeOf>

const sectionsOf = (outcomes: readonly Outcome[]): (string | object)[] => {
  if (outcomes.length <= shownMax) return [outcomes]
  const refused = outcomes.filter(({ state }) => state === 'refused')
  const states = [...Map.groupBy(outcomes, ({ state }) => state)]
  return [
    states.map(([state, of]) => ({ state, organizations: of.length })),
    ...(refused.length === 0 ? [] : ['Refused', refused]),
  ]
}

const notClosed = (state: string, reason: string | null) => ({
  state,
  through_revision: null,
  closing: null,
  expired_lots: 0,
  digest: null,
  reason,
})

const outcomeOf = (closed: ClosedMonth | null) => {
  if (closed === null) return notClosed('nothing to close', null)
  return {
    state: closed.already ? 'closed already' : 'closed',
    through_revision: closed.closed.through_revision,
    closing: closed.closed.totals.closing,
    expired_lots: closed.expired,
    digest: closed.closed.digest,
    reason: null,
  }
}

const requestsCharactersMax = 1_000_000

const reversing = z.object({
  requests: manyLines(
    requestIdsIn,
    { label: 'Calls', help: 'request ids of calls, one per line' },
    { charactersMax: requestsCharactersMax },
  ),
})

const reversed = async (
  { foundation, operator: { actor }, caughtUp, progress }: Context,
  { requests: requestIds }: z.output<typeof reversing>,
  dryRun: boolean,
) => {
  await caughtUp()
  const onProgress = (calls: number): void => progress(`${calls} of ${requestIds.length} calls`)
  const { calls, total, pending } = await reverseCalls(foundation, { requestIds, dryRun, onProgress, actor })
  const count = calls.filter((one) => one.reversed).length
  return { json: { reversed: count, credits: formatCredits(total), calls }, failed: pending > 0 }
}

const reverse = command({
  name: 'ledger reverse',
  action: 'credits.change',
  long: 'repeatable',
  summary:
    'refund calls whose outcome was unknown when a process stopped; the log of that process lists them',
  input: reversing,
  changes: { of: 'money', asks: 'on a terminal' },
  plan: async (context, input) => {
    const { json } = await reversed(context, input, true)
    const { reversed: count, credits, calls } = json
    return {
      says: [
        count === 0
          ? `Nothing to give back: ${calls.length === 1 ? 'the call has' : `the ${calls.length} calls have`} no charge.`
          : `Give back ${creditsText(credits)} for ${count} of ${calls.length === 1 ? '1 call' : `${calls.length} calls`}.`,
      ],
      json,
    }
  },
  run: (context, input) => reversed(context, input, false),
})

export const declarations = [verify, acknowledge, reconcile, close, reverse]
