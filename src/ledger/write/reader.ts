import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { within } from '../../concurrency/deadline.ts'
import { digestAfter, recordedMsIn } from '../../event-log/hash-chain.ts'
import { decodeLedgerEvent, withEvent } from '../../event-log/ledger-event.ts'
import { type EventLog, LogRewritten, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import { ledgerStream } from '../../events/streams.ts'
import { type Account, balanceOf, evolve, newAccount } from '../account.ts'
import type { Committed } from '../command.ts'
import type { LedgerLimits } from './options.ts'

/**
 * Folds one organization's ledger into accounts. Folding continues from an account in a snapshot or in memory, provided that the ledger
 * still contains the account's last event.
 */

/**
 * Returns the stored account from which folding starts, null if there is none, or `not sealed` if the projector did not write it. A wrong
 * snapshot can only make loading slower.
 */
export type AccountSnapshot = (organizationId: string) => Promise<Account | null | 'not sealed'>

/** Commands found in a stream, by the id of their first event. */
export type Found = Map<string, Committed>

type Loaded = { readonly account: Account; readonly found: Found }

export type LedgerReader = {
  /**
   * Returns the current account, and the commands that were found while reading. Throws `LogRewritten` if the ledger ends before an event
   * that the projector has read.
   */
  load(): Promise<Loaded>
  /** Folds all later events into the account. Throws `LogRewritten` if the ledger has lost the account's last event. */
  catchUp(account: Account): Promise<Found>
  /** Returns the commands in a range of the ledger (inclusive), with the balance of the given account. */
  findBetween(account: Account, range: { from: number; to: number; atMs: number }): Promise<Found>
  /** Returns a page of the stream, or an empty page if there is none. Settles within `waitMs` (default: `readDeadlineMs`). */
  page(from: number, max?: number, waitMs?: number): Promise<RecordedEvent[]>
}

type ReaderOptions = {
  readonly eventLog: Pick<EventLog, 'read'>
  readonly snapshot: AccountSnapshot
  readonly logger: Logger
  readonly limits: Pick<LedgerLimits, 'readPageMax' | 'readDeadlineMs' | 'retryPauseMs'>
}

export const createReader = (organizationId: string, options: ReaderOptions): LedgerReader => {
  const { eventLog, limits } = options
  const stream = ledgerStream(organizationId)
  const { readDeadlineMs } = limits

  const page = (from: number, max = limits.readPageMax, waitMs = readDeadlineMs): Promise<RecordedEvent[]> =>
    within(readIfAny(eventLog, stream, { from, max }), { waitMs }, () => {
      throw new Unavailable(`the event log did not answer a read within ${waitMs} ms`)
    })
  const pages = { page, max: limits.readPageMax }

  return {
    page,
    load: () => load(organizationId, pages, options),
    catchUp: async (account) => {
      for (let again = false; ; again = true) {
        const found = await foldOn(account, pages)
        if (found !== undefined) return found
        if (again)
          throw new LogRewritten(
            `${stream} no longer contains the event at revision ${account.revision} that this process has written or read`,
          )
        // Tries once more, because a node of the log can be behind for a moment.
        await sleep(limits.retryPauseMs)
      }
    },
    findBetween: async (account, { from, to, atMs }) => {
      const found: Found = new Map()
      for (let next = from; next <= to; next += limits.readPageMax)
        // Does not read beyond the range, because the page could contain only a part of the next command.
        for (const recorded of await page(next, Math.min(limits.readPageMax, to - next + 1)))
          record(found, decodeEvent(recorded), balanceOf(account, atMs))
      return found
    },
  }
}

type Pages = { readonly page: LedgerReader['page']; readonly max: number }

/** Folds all later events into the account. Returns undefined if the ledger does not contain the account's last event. */
const foldOn = async (account: Account, { page, max }: Pages): Promise<Found | undefined> => {
  const found: Found = new Map()
  let events = await page(Math.max(0, account.revision))
  let more = events.length === max
  if (account.revision >= 0) {
    const [last] = events
    if (last === undefined || digestAfter(last) !== account.digest) return undefined
    account.recordedAtMs = recordedMsIn(last.metadata, 0)
    events = events.slice(1)
  }
  for (;;) {
    note(found, account, events)
    if (!more) return found
    events = await page(account.revision + 1)
    more = events.length === max
  }
}

const load = async (
  organizationId: string,
  pages: Pages,
  { snapshot, logger }: ReaderOptions,
): Promise<Loaded> => {
  const known = await snapshot(organizationId)
  if (known !== null && known !== 'not sealed') {
    const { revision } = known
    const found = await foldOn(known, pages)
    if (found !== undefined) return { account: known, found }
    // The projector seals rows only for events that it has read, so the log has lost these events, and perhaps later ones.
    const message = `the read models contain revision ${revision} of ${ledgerStream(organizationId)}, but the event log does not: the log was restored from an older copy, or the ledger was shortened`
    logger.fatal({ organizationId, revision }, `ledger: ${message}; see "ledger verify"`)
    throw new LogRewritten(message)
  }
  if (known === 'not sealed')
    logger.error(
      { organizationId },
      'ledger: the account\'s row in the read models was not written by the projector, so the ledger is folded from its start; repair the row with "projection rebuild accounts"',
    )
  const account = newAccount(organizationId)
  return { account, found: (await foldOn(account, pages)) ?? new Map() }
}

const note = (found: Found, account: Account, events: readonly RecordedEvent[]): Found => {
  for (const recorded of events) {
    if (recorded.revision !== account.revision + 1)
      throw new Error(`${recorded.stream}: revision ${account.revision + 1} is missing`)
    const decoded = decodeLedgerEvent(recorded)
    const event = { type: decoded.type, data: decoded.data } as LedgerEvent
    withEvent(recorded, () => evolve(account, event, recorded.revision))
    account.digest = digestAfter(recorded)
    account.recordedAtMs = recordedMsIn(recorded.metadata, 0)
    record(found, decoded, balanceOf(account, Date.parse(decoded.metadata.effective_at)))
  }
  return found
}

/** Adds an event to its command. The later events of a command have the first one as their cause. */
const record = (
  found: Found,
  { type, data, metadata, recorded }: DecodedEvent,
  balance: Committed['balance'],
): void => {
  const first = metadata.causation_id ?? recorded.id
  const before = found.get(first)
  // If the snapshot ends between a call and its charge, only the charge is read. It is skipped, because it is not the whole result of
  // the command.
  if (before === undefined && first !== recorded.id) return
  const events = [...(before?.events ?? []), { type, data } as LedgerEvent]
  const requestId = metadata.request_id
  found.set(first, { events, revision: recorded.revision, balance, repeated: true, requestId })
}
