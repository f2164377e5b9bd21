import { type MicroCredits, parseCredits } from '../billing/money.ts'
import { digestAfter } from '../event-log/hash-chain.ts'
import { decodeLedgerEvent, withEvent } from '../event-log/ledger-event.ts'
import type { EventLog, Position, RecordedEvent } from '../event-log/port.ts'
import { pagesOf } from '../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf, LedgerEvent } from '../events/catalogue.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { ledgerStream } from '../events/streams.ts'
import { upcast } from '../events/upcast.ts'
import { type Account, evolve, newAccount } from './account.ts'
import type { RatedCall } from './rerate/part.ts'

/** Reads a ledger as calls with their charges, fast enough for millions of calls. */

export type LedgerCall = RatedCall & {
  readonly eventId: string
  readonly requestId: string | null
  /** The rule that made the call free, or null if it was charged. */
  readonly freeBy: string | null
  /** Null if the call was free. */
  charge: DomainEventOf<'CreditCharged'>['data'] | null
  charged: MicroCredits
}

export type Walk = {
  /** Called for each call when its charge is known. The account is then the one before the call, except for its lots. */
  readonly call: (call: LedgerCall) => void
  /** Called before the call is folded, with the account before the call. */
  readonly decided?: (call: RatedCall, account: Account) => void
  readonly adjusted?: (event: AdjustedEvent) => void
  /** Called for events other than calls, charges and adjustments. */
  readonly other?: (event: DecodedEvent) => void
  /** Called after each page, with its number of events and the last revision whose call is complete. */
  readonly page?: (events: number, complete: number) => void | Promise<void>
}

export type AdjustedEvent = DecodedEvent & DomainEventOf<'CreditAdjusted'>

type Reach = {
  readonly from?: number
  /** The last revision to read. The default is the end of the ledger. */
  readonly upTo?: number
  /** Skips events after this position of the log, and a call whose charge may be after it. */
  readonly until?: Position
  readonly account?: Account
  readonly fold?: (account: Account, event: LedgerEvent, revision: number) => void
}

const pageMax = 4_000

/**
 * Passes a ledger's events to `walk`, in order, and folds the account. Resolves with the account, whose revision is −1
 * if there is no ledger.
 */
export const walkLedger = async (
  eventLog: Pick<EventLog, 'read'>,
  organizationId: string,
  walk: Walk,
  reach: Reach = {},
): Promise<Account> => {
  const { from = 0, upTo = Number.MAX_SAFE_INTEGER, until, fold = evolve } = reach
  const account = reach.account ?? newAccount(organizationId)
  let pending: LedgerCall | null = null
  const settle = (): void => {
    if (pending !== null) walk.call(pending)
    pending = null
  }
  for await (const page of pagesOf(eventLog, ledgerStream(organizationId), {
    from,
    upTo,
    pageMax,
    whole: true,
  })) {
    let events = 0
    let last: RecordedEvent | undefined
    for (const recorded of page) {
      if (until !== undefined && recorded.position > until) break
      events++
      last = recorded
      const event = withEvent(recorded, () => decoded(recorded))
      const charge = event.type === 'CreditCharged' ? event.data : null
      if (charge !== null && pending !== null && isCausedBy(recorded, pending.eventId)) {
        pending.charge = charge
        pending.charged = parseCredits(charge.amount)
      }
      settle()
      if (event.type === 'KeyUsed') {
        pending = callOf(event, recorded)
        walk.decided?.(pending, account)
      } else if (charge === null) {
        const whole = decodeEvent(recorded)
        if (whole.type === 'CreditAdjusted') walk.adjusted?.(whole)
        else walk.other?.(whole)
      }
      withEvent(recorded, () => fold(account, event, recorded.revision))
      account.revision = recorded.revision
    }
    if (last !== undefined) account.digest = digestAfter(last)
    await walk.page?.(events, pending === null ? account.revision : account.revision - 1)
    // If the range ends here, the last call is skipped, because the next event can be its charge.
    if (events < page.length) return account
  }
  settle()
  await walk.page?.(0, account.revision)
  return account
}

/** The beginning of the metadata of this service's events (see `stored-event.ts`). */
const opening = '{"schema_version":'

/** Decodes an event. Does not parse the metadata of calls and charges, because that takes the same time as parsing their data. */
const decoded = (recorded: RecordedEvent): LedgerEvent => {
  const { type, metadata, data } = recorded
  const isMost = type === 'KeyUsed' || type === 'CreditCharged'
  if (!isMost || !metadata.startsWith(opening)) return decodeLedgerEvent(recorded) as unknown as LedgerEvent
  const version = Number.parseInt(metadata.slice(opening.length, opening.length + 4), 10)
  return upcast(type, version, JSON.parse(data)) as LedgerEvent
}

/** Finds a string in the metadata without parsing it. Returns undefined if there is none. */
const memberOf = ({ metadata }: RecordedEvent, name: 'request_id' | 'causation_id' | 'effective_at') => {
  const at = metadata.indexOf(`"${name}":"`)
  if (at === -1) return undefined
  const start = at + name.length + 4
  const text = metadata.slice(start, metadata.indexOf('"', start))
  return text.includes('\\') ? (JSON.parse(metadata) as EventMetadata)[name] : text
}

const isCausedBy = (recorded: RecordedEvent, eventId: string): boolean =>
  memberOf(recorded, 'causation_id') === eventId

const callOf = (
  { data }: Extract<LedgerEvent, { type: 'KeyUsed' }>,
  recorded: RecordedEvent,
): LedgerCall => ({
  revision: recorded.revision,
  eventId: recorded.id,
  requestId: memberOf(recorded, 'request_id') ?? null,
  freeBy: data.free_by?.rule ?? null,
  facts: data.facts,
  atMs: Date.parse(memberOf(recorded, 'effective_at') ?? ''),
  charge: null,
  charged: 0n,
})
