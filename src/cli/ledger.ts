import { requestIdsIn, reverseCalls } from '../administration/credits/reverse-calls.ts'
import { labelOf, wholeNumber } from '../administration/input.ts'
import { acknowledgeFault, type VerifiedLedger, verifyLedgers } from '../administration/ledgers/ledgers.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { formatCredits } from '../billing/money.ts'
import type { LedgerFault } from '../ledger/check/verify.ts'
import {
  type Command,
  type CommandContext,
  type Given,
  organizationParameter,
  wholeOrNot,
} from './command.ts'
import { explainCommand } from './explain.ts'
import { exportCommand } from './export.ts'
import { readTextFile } from './files.ts'
import { reconcileCommand } from './reconcile.ts'

const revisionBounds = { min: 0, max: Number.MAX_SAFE_INTEGER }

const verify: Command = {
  name: 'ledger verify',
  summary:
    'recompute the hash chain, the rules and every charge of a ledger, or of all; names the first broken event',
  parameters: [{ name: 'org', help: 'of this organization only (default: all)' }],
  changes: 'nothing',
  run: async ({ foundation, progress }, given) => {
    const { ok, readModels, ledgers } = await verifyLedgers(await foundation({ anyHistory: true }), {
      organizationId: given.text('org'),
      onProgress: (organizationId, events) => progress(`${organizationId}: ${events} events`),
    })
    return {
      json: { ok, read_models: readModels, ledgers: ledgers.map(verdictJson) },
      failed: !ok,
      lines: [
        ...ledgers.flatMap(verdictLines),
        ...(readModels === null ? [] : [`BROKEN  read models: ${readModels}`]),
      ],
    }
  },
}

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

const verdictLines = ({
  organizationId,
  events,
  digest,
  fault,
  known,
  contradicted,
  accountRow,
}: VerifiedLedger): string[] => [
  fault === null
    ? `ok      ${organizationId}  ${events} events, digest ${digest}`
    : `BROKEN  ${organizationId}  ${described(fault)}`,
  ...(accountRow === 'changed'
    ? [
        `CHANGED ${organizationId}  its row in accounts is not as the projector wrote it: calls do not go by it, figures do; "projection rebuild accounts" mends it`,
      ]
    : []),
  ...contradicted.map(
    ({ priceBookVersion, charges, first }) =>
      `BROKEN  ${organizationId}  price book ${priceBookVersion} does not say any more what it said when it priced ${charges} charge${charges === 1 ? '' : 's'}, the first at revision ${first.revision} (call ${first.requestId ?? 'without a request id'}); "event-log verify" names the changed event`,
  ),
  ...known.map((one) => `known   ${organizationId}  ${described(one)}`),
]

const described = ({ revision, event_id, type, digest, fault }: LedgerFault): string =>
  `revision ${revision}, ${event_id === null ? 'no event' : `event ${event_id} (${type})`}, digest ${digest === '' ? 'none' : digest}: ${fault}`

const acknowledgedIn = (given: Given) => ({
  organization_id: given.required('org'),
  revision: wholeNumber('revision', given.required('revision'), revisionBounds),
  digest: given.required('digest'),
  reason: labelOf('reason', given.required('reason')),
})

const acknowledge: Command = {
  name: 'ledger acknowledge',
  summary: 'record that a fault "ledger verify" names is known; any other fault stays new',
  parameters: [
    organizationParameter,
    { name: 'revision', help: 'as "ledger verify" names it', required: true },
    { name: 'digest', help: 'as "ledger verify" names it', required: true },
    { name: 'reason', help: 'why it may stay as it is', required: true },
  ],
  changes: {
    of: 'records',
    asks: 'always',
    left: wholeOrNot('ledger verify'),
    plan: async (_, given) => {
      const { organization_id, revision, digest } = acknowledgedIn(given)
      return {
        says: [
          `Record that the fault at revision ${revision} of ${organization_id}, digest ${digest}, is known: it raises no alarm any more.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const { organization_id, revision, digest, reason } = acknowledgedIn(given)
    const open = await foundation({ anyHistory: true })
    await acknowledgeFault(open, {
      organizationId: organization_id,
      revision,
      digest,
      reason,
      ...open.operator,
    })
    return {
      json: { organization_id, revision, digest, reason },
      lines: [`recorded: the fault at revision ${revision} of ${organization_id} is known`],
    }
  },
}

const requestsBytesMax = 1_000_000
const notRecorded =
  'not recorded. An append on its way to the event log may still record it: give the file again when the log answers'

const reversed = async (
  { foundation, logger, progress }: Pick<CommandContext, 'foundation' | 'logger' | 'progress'>,
  given: Given,
  dryRun: boolean,
) => {
  const file = given.required('requests')
  const requestIds = requestIdsIn(await readTextFile('requests', file, requestsBytesMax))
  const open = await foundation()
  await catchUp(open, logger)
  const onProgress = (calls: number): void => progress(`${calls} of ${requestIds.length} calls`)
  const { calls, total } = await reverseCalls(open, { requestIds, dryRun, onProgress, ...open.operator })
  const count = calls.filter(({ kind }) => kind === 'reversed').length
  return {
    json: {
      reversed: count,
      credits: formatCredits(total),
      calls: calls.map((call) =>
        call.kind === 'reversed'
          ? {
              request_id: call.requestId,
              reversed: true,
              organization_id: call.organizationId,
              amount: call.amount,
            }
          : {
              request_id: call.requestId,
              reversed: false,
              why: call.kind === 'left' ? call.why : notRecorded,
            },
      ),
    },
    lines: calls.map((call) =>
      call.kind === 'reversed'
        ? `reversed ${call.requestId}  ${call.amount} credits of ${call.organizationId}`
        : `left     ${call.requestId}  ${call.kind === 'left' ? call.why : notRecorded}`,
    ),
    failed: calls.some(({ kind }) => kind === 'not_recorded'),
    count,
    total,
  }
}

const reverse: Command = {
  name: 'ledger reverse',
  summary:
    'give back what calls cost whose outcome was unknown when a process stopped; its log names them. Exit code 1 if one is not recorded',
  parameters: [
    { name: 'requests', help: 'a file with a request id on each line', required: true, kind: 'file' },
  ],
  changes: {
    of: 'money',
    asks: 'on a terminal',
    left: 'Some of the calls may be reversed. Give the same file again: what is reversed stays so.',
    plan: async (context, given) => {
      const { count, total, json } = await reversed(context, given, true)
      return {
        says: [
          count === 0
            ? `Nothing: none of the ${json.calls.length} calls has a charge to give back.`
            : `Give back ${formatCredits(total)} credits of ${count} of the ${json.calls.length} calls.`,
        ],
        json,
      }
    },
  },
  run: async (context, given) => {
    const { json, lines, failed } = await reversed(context, given, false)
    return { json, lines, failed }
  },
}

export const ledgerCommands: readonly Command[] = [
  explainCommand,
  exportCommand,
  verify,
  acknowledge,
  reverse,
  reconcileCommand,
]
