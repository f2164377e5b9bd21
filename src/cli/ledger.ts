import { allAccounts } from '../../projections/accounts.ts'
import { lastLineOf } from '../../projections/ledger-lines.ts'
import { type AccountRow, accountSnapshot, sealedState } from '../../projections/sealed-account.ts'
import { formatCredits } from '../billing/money.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, type RecordedEvent, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import { ledgerStream, operatorStream, organizationOfStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { balanceOf } from '../ledger/account.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { type LedgerFault, type LedgerWitness, verifyLedger } from '../ledger/verify.ts'
import { readCheckpoints, strayCheckpoints, strayMessage } from '../projector/checkpoints.ts'
import { type Command, type CommandContext, labelOf, organizationParameter, wholeNumber } from './command.ts'

const pageMax = 1_000

export const ledgerCommands: readonly Command[] = [
  {
    name: 'ledger export',
    summary: "write an organization's ledger, one event a line (JSON Lines; --json: one array)",
    parameters: [organizationParameter, { name: 'from', help: 'first revision to write (default 0)' }],
    run: async (context, given) => {
      const { eventLog } = await context.foundation({ anyHistory: true })
      const organizationId = given.required('org')
      const from = wholeNumber('from', given.text('from') ?? '0', { min: 0, max: Number.MAX_SAFE_INTEGER })
      const events = await exportLedger(eventLog, { organizationId, from }, context)
      return { json: { organization_id: organizationId, events }, written: true }
    },
  },
  {
    name: 'ledger verify',
    summary: 'recompute the hash chain and the rules of a ledger, or of all; names the first broken event',
    parameters: [{ name: 'org', help: 'of this organization only (default: all)' }],
    run: async (context, given) => {
      const open = await context.foundation({ anyHistory: true })
      const acknowledged = await acknowledgedFaults(open.eventLog)
      const stray = await strayCheckpoints(open.eventLog, await readCheckpoints(open.pool))
      const ledgers = []
      for (const organizationId of await organizationsOf(open, given.text('org'))) {
        const { witnesses, accountRow } = await witnessesOf(open, organizationId)
        const verdict = await verifyLedger(open.eventLog, organizationId, {
          witnesses,
          acknowledged: (revision, digest) => acknowledged.has(`${organizationId} ${revision} ${digest}`),
          onProgress: (events) => context.progress(`${organizationId}: ${events} events`),
        })
        if (given.text('org') !== undefined && verdict.events === 0 && verdict.fault === null)
          throw missing(organizationId)
        ledgers.push({
          organization_id: organizationId,
          ok: verdict.fault === null && accountRow !== 'changed',
          events: verdict.events,
          digest: verdict.digest,
          balance: formatCredits(balanceOf(verdict.account, Date.now())),
          fault: verdict.fault,
          known_faults: verdict.known,
          account_row: accountRow,
        })
      }
      const read_models = stray.length === 0 ? null : strayMessage(stray)
      const ok = read_models === null && ledgers.every((ledger) => ledger.ok)
      return {
        json: { ok, read_models, ledgers },
        failed: !ok,
        lines: [
          ...ledgers.flatMap(({ organization_id, events, digest, fault, known_faults, account_row }) => [
            fault === null
              ? `ok      ${organization_id}  ${events} events, digest ${digest}`
              : `BROKEN  ${organization_id}  ${told(fault)}`,
            ...(account_row === 'changed'
              ? [
                  `CHANGED ${organization_id}  its row in accounts is not as the projector wrote it: calls do not go by it, figures do; "projection rebuild accounts" mends it`,
                ]
              : []),
            ...known_faults.map((known) => `known   ${organization_id}  ${told(known)}`),
          ]),
          ...(read_models === null ? [] : [`BROKEN  read models: ${read_models}`]),
        ],
      }
    },
  },
  {
    name: 'ledger acknowledge',
    summary: 'record that a fault "ledger verify" names is known; any other fault stays new',
    parameters: [
      organizationParameter,
      { name: 'revision', help: 'as "ledger verify" names it', required: true },
      { name: 'digest', help: 'as "ledger verify" names it', required: true },
      { name: 'reason', help: 'why it may stay as it is', required: true },
    ],
    run: async (context, given) => {
      const { eventLog } = await context.foundation({ anyHistory: true })
      const organization_id = given.required('org')
      const revision = wholeNumber('revision', given.required('revision'), {
        min: 0,
        max: Number.MAX_SAFE_INTEGER,
      })
      const digest = given.required('digest')
      const reason = labelOf('reason', given.required('reason'))
      const at = new Date().toISOString()
      await appendNext(eventLog, operatorStream, [
        encodeEvent(
          { type: 'LedgerFaultAcknowledged', data: { organization_id, revision, digest, reason } },
          {
            id: eventIdOf(operatorStream, `acknowledge/${organization_id}/${revision}/${digest}`, 0),
            actor: 'cli',
            effectiveAt: at,
          },
        ),
      ])
      return {
        json: { organization_id, revision, digest, reason },
        lines: [`recorded: the fault at revision ${revision} of ${organization_id} is known`],
      }
    },
  },
]

const told = ({ revision, event_id, type, digest, fault }: LedgerFault): string =>
  `revision ${revision}, ${event_id === null ? 'no event' : `event ${event_id} (${type})`}, digest ${digest === '' ? 'none' : digest}: ${fault}`

/** Faults operators know, as "organization revision digest". */
const acknowledgedFaults = async (eventLog: EventLog): Promise<Set<string>> => {
  const known = new Set<string>()
  for (let from = 0; ; from += pageMax) {
    const page = await eventLog.read(operatorStream, { from, max: pageMax }).catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
    for (const { type, data } of page.map(decodeEvent))
      if (type === 'LedgerFaultAcknowledged')
        known.add(`${data.organization_id} ${data.revision} ${data.digest}`)
    if (page.length < pageMax) return known
  }
}

/** What the read models tell of a ledger, and whether its row in accounts is the projector's. */
const witnessesOf = async (
  { pool, secrets }: Foundation,
  organizationId: string,
): Promise<{ witnesses: LedgerWitness[]; accountRow: 'sealed' | 'changed' | 'none' }> => {
  const witnesses: LedgerWitness[] = []
  const snapshot = accountSnapshot(organizationId)
  const [row] = (await pool.query<AccountRow>(snapshot.text, [...snapshot.values])).rows
  const sealed = row !== undefined && sealedState(row, secrets.rowSeal) !== null
  if (row !== undefined && sealed)
    witnesses.push({ name: 'its row in accounts', revision: Number(row.revision), digest: row.digest })
  const lines = lastLineOf(organizationId)
  const [last] = (await pool.query<{ revision: string | null }>(lines.text, [...lines.values])).rows
  if (last !== undefined && last.revision !== null)
    witnesses.push({ name: 'its statement', revision: Number(last.revision) })
  return { witnesses, accountRow: row === undefined ? 'none' : sealed ? 'sealed' : 'changed' }
}

const missing = (organizationId: string): CommandRefused =>
  new CommandRefused(`there is no ledger of ${organizationId}; see "org list"`)

const missingIsRefused =
  (organizationId: string) =>
  (error: unknown): never => {
    throw error instanceof StreamMissing ? missing(organizationId) : error
  }

/** Every ledger the event log or the read models know of. */
const organizationsOf = async (
  { eventLog, pool }: Foundation,
  one: string | undefined,
): Promise<string[]> => {
  if (one !== undefined) return [one]
  const { text, values } = allAccounts()
  const { rows } = await pool.query<{ organization_id: string }>(text, [...values])
  const streams = await eventLog.streams(ledgerStream(''))
  const named = streams.map((stream) => organizationOfStream(stream) ?? stream)
  return [...new Set([...rows.map(({ organization_id }) => organization_id), ...named])].sort()
}

const exportLedger = async (
  eventLog: EventLog,
  { organizationId, from }: { organizationId: string; from: number },
  { json, write }: CommandContext,
): Promise<number> => {
  let next = from
  if (json) await write('[')
  for (;;) {
    const page = await eventLog
      .read(ledgerStream(organizationId), { from: next, max: pageMax })
      .catch(missingIsRefused(organizationId))
    const texts = page.map((recorded) => JSON.stringify(exported(recorded)))
    if (texts.length > 0)
      await write(json ? `${next === from ? '' : ','}${texts.join(',')}` : `${texts.join('\n')}\n`)
    next += page.length
    if (page.length < pageMax) break
  }
  if (json) await write(']\n')
  return next - from
}

/** An event with its whole envelope. Data and metadata are parsed: the exact bytes are the event log's. */
const exported = (recorded: RecordedEvent) => ({
  position: recorded.position.toString(),
  stream: recorded.stream,
  revision: recorded.revision,
  event_id: recorded.id,
  type: recorded.type,
  organization_id: organizationOfStream(recorded.stream),
  recorded_at: new Date(recorded.recordedAtMs).toISOString(),
  metadata: JSON.parse(recorded.metadata) as unknown,
  data: JSON.parse(recorded.data) as unknown,
})
