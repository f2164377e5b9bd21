import { allAccounts } from '../../../projections/accounts.ts'
import { accountSnapshots, sealedState } from '../../../projections/sealed-account.ts'
import { lastLineOf } from '../../../projections/statement-lines.ts'
import type { MicroCredits } from '../../billing/money.ts'
import { priceBookOf } from '../../billing/price-book.ts'
import { standingBooks } from '../../billing/prices.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { type EventLog, EventsUnreadable, type RecordedEvent, StreamMissing } from '../../event-log/port.ts'
import { openablePages } from '../../event-log/read-openable.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { ledgerStream, operatorStream, organizationOfStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { balanceOf } from '../../ledger/account.ts'
import type { Contradicted } from '../../ledger/check/recompute.ts'
import { type LedgerFault, type LedgerWitness, verifyLedger } from '../../ledger/check/verify.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { readLedger } from '../../ledger/months/pages.ts'
import { readPricesAsTheyAre } from '../../ledger/prices/price-stream.ts'
import { readCheckpoints, strayCheckpoints, strayMessage } from '../../projector/checkpoints.ts'
import { recordOperation } from '../operator-events.ts'

export const missingLedger = (organizationId: string): CommandRefused =>
  new CommandRefused(`there is no ledger of ${organizationId}; see "org list"`)

/** A range of a ledger's events: by revision (including both ends), or by effective time (excluding the end). */
export type LedgerRange =
  | { readonly by: 'revision'; readonly from: number; readonly to: number | null }
  | { readonly by: 'time'; readonly from: string | null; readonly until: string | null }

/**
 * An organization's events in a range, page by page. A page is empty if it has no events in the range. Throws `CommandRefused` if
 * the ledger does not exist.
 */
export async function* exportLedger(
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, range }: { organizationId: string; range: LedgerRange },
): AsyncGenerator<readonly RecordedEvent[]> {
  const { pages } = readLedger(eventLog, organizationId, {
    from: range.by === 'revision' ? range.from : 0,
    ...(range.by === 'revision' && range.to !== null ? { to: range.to } : {}),
  })
  try {
    for await (const page of pages())
      yield range.by === 'revision' ? page : page.filter((event) => isWithin(event, range))
  } catch (error) {
    throw error instanceof StreamMissing ? missingLedger(organizationId) : error
  }
}

const isWithin = (
  event: RecordedEvent,
  { from, until }: Extract<LedgerRange, { readonly by: 'time' }>,
): boolean => {
  if (from === null && until === null) return true
  const at = decodeEvent(event).metadata.effective_at
  return (from === null || at >= from) && (until === null || at < until)
}

/** The progress of work on many ledgers: the events read of one of them, and its place among all. */
export type LedgerProgress = {
  readonly organizationId: string
  readonly events: number
  readonly nth: number
  readonly of: number
}

export const progressText = ({ organizationId, events, nth, of }: LedgerProgress): string =>
  `${of === 1 ? '' : `organization ${nth} of ${of}, `}${organizationId}: ${events} events`

export type VerifiedLedger = {
  readonly organizationId: string
  readonly ok: boolean
  readonly events: number
  readonly digest: string
  readonly balance: MicroCredits
  readonly fault: LedgerFault | null
  readonly known: readonly LedgerFault[]
  readonly contradicted: readonly Contradicted[]
  /** Whether the ledger's row in `accounts` is unchanged since the projector wrote it. */
  readonly accountRow: 'sealed' | 'changed' | 'none'
}

/**
 * Verifies one ledger, or every ledger in the event log and the read models. `readModels` describes a fault that concerns all read
 * models; null if there is none. Throws `CommandRefused` if the requested ledger does not exist.
 */
export const verifyLedgers = async (
  foundation: Foundation,
  {
    organizationId: asked,
    onProgress,
  }: { organizationId?: string | undefined; onProgress?: (progress: LedgerProgress) => void },
): Promise<{ ok: boolean; readModels: string | null; ledgers: VerifiedLedger[] }> => {
  const { eventLog } = foundation
  const acknowledged = await acknowledgedFaults(eventLog)
  const readModels = await readModelsFault(foundation)
  const books = standingBooks((await readPricesAsTheyAre(eventLog)).prices).map(priceBookOf)
  const ledgers: VerifiedLedger[] = []
  const organizations = asked === undefined ? await organizationsOf(foundation) : [asked]
  for (const [n, organizationId] of organizations.entries()) {
    const { witnesses, accountRow } = await witnessesOf(foundation, organizationId)
    const { account, ...verdict } = await verifyLedger(eventLog, organizationId, {
      witnesses,
      books,
      acknowledged: (revision, digest) => acknowledged(organizationId, revision, digest),
      onProgress: (events) => onProgress?.({ organizationId, events, nth: n + 1, of: organizations.length }),
    })
    const { events, fault, contradicted } = verdict
    if (asked !== undefined && events === 0 && fault === null) throw missingLedger(organizationId)
    ledgers.push({
      ...verdict,
      ok: fault === null && contradicted.length === 0 && accountRow !== 'changed',
      balance: balanceOf(account, Date.now()),
      accountRow,
    })
  }
  return { ok: readModels === null && ledgers.every(({ ok }) => ok), readModels, ledgers }
}

const readModelsFault = async ({ eventLog, pool }: Foundation): Promise<string | null> => {
  try {
    const stray = await strayCheckpoints(eventLog, await readCheckpoints(pool))
    return stray.length === 0 ? null : strayMessage(stray)
  } catch (error) {
    if (!(error instanceof EventsUnreadable)) throw error
    return `they were folded up to an event that can no longer be opened: ${error.message}`
  }
}

type Acknowledgement = {
  readonly organizationId: string
  readonly revision: number
  readonly digest: string
  readonly reason: string
  readonly actor: string
}

/** Records that a fault found by `verifyLedgers` is known. Other faults remain new. */
export const acknowledgeFault = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, revision, digest, reason, actor }: Acknowledgement,
): Promise<void> => {
  const data = { organization_id: organizationId, revision, digest, reason }
  await recordOperation(eventLog, { type: 'LedgerFaultAcknowledged', data }, { actor })
}

const faultName = (organizationId: string, revision: number, digest: string): string =>
  `${organizationId} ${revision} ${digest}`

/**
 * Whether an operator has acknowledged a fault, identified by its ledger, its revision and the digest of the bytes at that
 * revision.
 */
export const acknowledgedFaults = async (
  eventLog: EventLog,
): Promise<(organizationId: string, revision: number, digest: string) => boolean> => {
  const known = new Set<string>()
  // An unreadable event acknowledges nothing, so a fault that only this event acknowledged counts as new.
  for await (const page of openablePages(eventLog, operatorStream, { from: 0 }))
    for (const recorded of page) {
      // Other events are not decoded, because this release may not know their types.
      if (recorded.type !== 'LedgerFaultAcknowledged') continue
      const { type, data } = decodeEvent(recorded)
      if (type === 'LedgerFaultAcknowledged')
        known.add(faultName(data.organization_id, data.revision, data.digest))
    }
  return (organizationId, revision, digest) => known.has(faultName(organizationId, revision, digest))
}

/** The read models' figures for a ledger, and whether its row in `accounts` is unchanged since the projector wrote it. */
const witnessesOf = async (
  { pool, secrets }: Foundation,
  organizationId: string,
): Promise<{ witnesses: LedgerWitness[]; accountRow: VerifiedLedger['accountRow'] }> => {
  const witnesses: LedgerWitness[] = []
  const [row] = await rowsOf(pool, accountSnapshots([organizationId]))
  const sealed = row !== undefined && sealedState(row, secrets.rowSeal) !== null
  if (row !== undefined && sealed)
    witnesses.push({ name: 'its row in accounts', revision: Number(row.revision), digest: row.digest })
  const [last] = await rowsOf(pool, lastLineOf(organizationId))
  if (last !== undefined && last.revision !== null)
    witnesses.push({ name: 'its statement', revision: Number(last.revision) })
  return { witnesses, accountRow: row === undefined ? 'none' : sealed ? 'sealed' : 'changed' }
}

/** Every organization with a ledger in the event log or the read models. */
export const organizationsOf = async ({ eventLog, pool }: Foundation): Promise<string[]> => {
  const rows = await rowsOf(pool, allAccounts())
  const streams = await eventLog.streams(ledgerStream(''))
  const named = streams.map((stream) => organizationOfStream(stream) ?? stream)
  return [...new Set([...rows.map(({ organization_id }) => organization_id), ...named])].sort()
}
