import { formatCredits, type MicroCredits } from '../../billing/money.ts'
import { closingGapMax, type Month } from '../../billing/months.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import { movementOf } from '../../billing/statement.ts'
import { hasLines } from '../../billing/statement-line.ts'
import { genesisDigest, recompute } from '../../event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { readOpenable, unreadableOrThrow } from '../../event-log/read-openable.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { checkEventData, isEventType, type LedgerEvent } from '../../events/catalogue.ts'
import { ledgerStream } from '../../events/streams.ts'
import { type Account, availableOf, evolve, newAccount } from '../account.ts'
import { type Contradicted, type Recomputing, recomputing } from './recompute.ts'

/** The first event of a ledger that was changed or is missing. `event_id` is null if the event is missing. */
export type LedgerFault = {
  readonly revision: number
  readonly event_id: string | null
  readonly type: string | null
  /**
   * The digest of the event's stored bytes or, if the event is missing, of the previous event. An operator acknowledges a fault by this
   * digest.
   */
  readonly digest: string
  readonly fault: string
}

type LedgerVerdict = {
  readonly organizationId: string
  readonly events: number
  readonly digest: string
  /** The account up to the last event that could be folded. */
  readonly account: Account
  /** The first fault that no operator has acknowledged, or null. */
  readonly fault: LedgerFault | null
  /** The faults that an operator has acknowledged. */
  readonly known: readonly LedgerFault[]
  /** The price books that were changed after they had priced charges in this ledger. */
  readonly contradicted: readonly Contradicted[]
}

/** A record about a ledger that is stored elsewhere, and with which the ledger must agree. */
export type LedgerWitness = {
  /** The name of the record in messages. */
  readonly name: string
  readonly revision: number
  /** The digest of the event at `revision`, if the record contains it. */
  readonly digest?: string
}

type VerifyOptions = {
  /** Must be collected before the ledger is read. Otherwise, they could be ahead of it. */
  readonly witnesses?: readonly LedgerWitness[]
  /** Whether an operator has acknowledged a fault with this digest at this revision. */
  readonly acknowledged?: (revision: number, digest: string) => boolean
  /** All price books that were published and not withdrawn. Without them, charges are not recomputed. */
  readonly books?: readonly PriceBook[]
  readonly onProgress?: (events: number) => void
}

const pageMax = 1_000

/**
 * Checks a ledger from its first event: the hash chain, the schema and order of its events, repeated ids, and the rules for charges,
 * expiries and closings. Stops at the first fault that no operator has acknowledged. If there is none, compares the end of the ledger
 * with the event log and with every witness.
 */
export const verifyLedger = async (
  eventLog: Pick<EventLog, 'read' | 'lastRevision'>,
  organizationId: string,
  { witnesses = [], acknowledged = () => false, books, onProgress }: VerifyOptions = {},
): Promise<LedgerVerdict> => {
  const stream = ledgerStream(organizationId)
  // If events are hidden, reading them below reports it.
  const engine = await eventLog.lastRevision(stream).catch(unreadableOrThrow)
  const records = [
    ...witnesses,
    ...(typeof engine === 'number' ? [{ name: 'the event log itself', revision: engine }] : []),
  ]
  const account = newAccount(organizationId)
  const known: LedgerFault[] = []
  const seen = new Seen()
  const folding = {
    sound: true,
    recomputing: books === undefined ? null : recomputing(books),
    closingFault: closingFaults(),
  }
  let digest = genesisDigest
  let events = 0
  const verdict = (fault: LedgerFault | null): LedgerVerdict => ({
    organizationId,
    events,
    digest,
    account,
    fault,
    known,
    contradicted: folding.recomputing?.contradicted ?? [],
  })
  const isKnown = (fault: LedgerFault): boolean => {
    if (!acknowledged(fault.revision, fault.digest)) return false
    known.push(fault)
    return true
  }
  for (;;) {
    const { events: page, unreadable } = await readOpenable(eventLog, stream, { from: events, max: pageMax })
    for (const recorded of page) {
      const { carried, computed } = recompute(recorded, { stream, revision: events, previous: digest })
      const text =
        faultOf(recorded, { expectedRevision: events, carried, computed, seen, account, folding }) ??
        contradicted(records, events, carried ?? computed)
      if (text !== null) {
        const { revision, id: event_id, type } = recorded
        const fault = { revision, event_id, type, digest: computed, fault: text }
        if (!isKnown(fault)) return verdict(fault)
      }
      // The event after an acknowledged fault was chained to the stored digest, not to the computed one.
      digest = carried ?? computed
      events = recorded.revision + 1
    }
    onProgress?.(events)
    // Later events cannot be checked, because the chain continues from this unreadable event.
    if (unreadable !== null)
      return verdict({ revision: events, event_id: null, type: null, digest, fault: unreadable.message })
    if (page.length < pageMax) break
  }
  const beyond = records.filter(({ revision }) => revision >= events)
  if (beyond.length === 0) return verdict(null)
  const fault = {
    revision: events,
    event_id: null,
    type: null,
    digest,
    fault: `${events === 0 ? 'there are no events' : `the ledger ends at revision ${events - 1}`}, but ${beyond
      .map(({ name, revision }) => `${name} has revision ${revision}`)
      .join(' and ')}: its end is missing`,
  }
  return verdict(isKnown(fault) ? null : fault)
}

/** Returns the fault in the time at which a lot was written off, or null. Must be called before the event is folded. */
const expiryFault = (account: Account, { type, data, metadata }: DecodedEvent): string | null => {
  if (type !== 'CreditExpired') return null
  const { effective_at, recorded_at } = metadata
  const lot = account.lots.find(({ grantId }) => grantId === data.grant_id)
  if (lot !== undefined && Date.parse(effective_at) < lot.expiresAtMs)
    return `writes off lot ${lot.grantId} as of ${effective_at}, before it expired`
  return recorded_at !== undefined && Date.parse(effective_at) > Date.parse(recorded_at)
    ? `writes off lot ${data.grant_id} as of ${effective_at}, but was recorded before that, at ${recorded_at}`
    : null
}

/**
 * Returns a function that checks each closing: its balance, and the start of the next month. It must be called for every event, in
 * order.
 */
const closingFaults = () => {
  const months = new Map<Month, { net: MicroCredits; readonly first: number }>()
  const prices: number[] = []
  let late: { readonly revision: number; readonly month: Month; readonly net: MicroCredits }[] = []
  let closedUpTo: Month = ''
  return (event: DecodedEvent): string | null => {
    const { type, data, metadata } = event
    const { revision } = event.recorded
    if (type === 'PriceOverrideSet' || type === 'PriceOverrideWithdrawn') prices.push(revision)
    if (type === 'MonthClosed') {
      const { month, through_revision: through, totals, next } = data
      // A later month was closed before this one, so this closing has no effect.
      if (month <= closedUpTo) return null
      closedUpTo = month
      let balance = 0n
      let begins = through + 1
      for (const [one, { net, first }] of months)
        if (one <= month) balance += net
        else if (first < begins) begins = first
      for (const one of late) if (one.revision > through && one.month <= month) balance -= one.net
      if (totals.closing !== formatCredits(balance))
        return `closes ${month} at a balance of ${totals.closing} credits, but its events add up to ${formatCredits(balance)}`
      const before = prices.filter((one) => one < next.revision)
      return next.revision > begins || before.join() !== next.prices.join()
        ? `contains a wrong start for the month after ${month}, which begins at revision ${begins}`
        : null
    }
    const ledgerEvent = { type, data } as LedgerEvent
    if (!hasLines(ledgerEvent.type)) return null
    const month = metadata.effective_at.slice(0, 7)
    const net = movementOf(ledgerEvent)
    const sum = months.get(month) ?? { net: 0n, first: revision }
    sum.net += net
    months.set(month, sum)
    if (net !== 0n) late.push({ revision, month, net })
    if (late.length > 2 * closingGapMax) late = late.slice(-closingGapMax)
    return null
  }
}

const contradicted = (
  witnesses: readonly LedgerWitness[],
  revision: number,
  digest: string,
): string | null => {
  const other = witnesses.find(
    (one) => one.revision === revision && one.digest !== undefined && one.digest !== digest,
  )
  return other === undefined ? null : `${other.name} has a different event at this revision`
}

/**
 * All event ids that were read. Several Sets are needed, because a Set can contain at most 2^24 values, and a busy ledger has more events
 * after a few years.
 */
class Seen {
  readonly #byStart = new Map<string, Set<string>>()
  has(id: string): boolean {
    return this.#byStart.get(id.slice(0, 2))?.has(id) === true
  }
  add(id: string): void {
    const start = id.slice(0, 2)
    const own = this.#byStart.get(start)
    if (own === undefined) this.#byStart.set(start, new Set([id]))
    else own.add(id)
  }
}

const faultOf = (
  recorded: RecordedEvent,
  found: {
    expectedRevision: number
    carried: string | null
    computed: string
    seen: Seen
    account: Account
    /** Whether the account still matches the ledger. If it does not, the rules cannot be checked. */
    folding: {
      sound: boolean
      readonly recomputing: Recomputing | null
      readonly closingFault: (event: DecodedEvent) => string | null
    }
  },
): string | null => {
  const { expectedRevision, carried, computed, seen, account, folding } = found
  if (recorded.revision !== expectedRevision)
    return `expected revision ${expectedRevision}: an event is missing`
  if (carried === null) return 'has no digest'
  if (carried !== computed)
    return 'its bytes do not match its digest, so this event or the one before it was changed'
  if (seen.has(recorded.id)) return 'its event id is in this ledger twice'
  seen.add(recorded.id)
  try {
    const decoded = decodeEvent(recorded)
    const { type, data, metadata } = decoded
    if (isEventType(recorded.type))
      checkEventData(recorded.type, metadata.schema_version, JSON.parse(recorded.data))
    if (type === 'CreditCharged') {
      // The id of a charge is normally the id of its event, which was checked above. If it is different, it must also be new.
      if (data.charge_id !== recorded.id && seen.has(data.charge_id))
        return `charge ${data.charge_id} is in this ledger twice`
      seen.add(data.charge_id)
    }
    if (!folding.sound) return null
    const wrong =
      folding.recomputing?.faultOf(account, decoded) ??
      expiryFault(account, decoded) ??
      folding.closingFault(decoded)
    folding.sound = false
    try {
      evolve(account, { type, data } as LedgerEvent, recorded.revision)
    } catch (error) {
      if (wrong === null) throw error
      return wrong
    }
    folding.sound = true
    if (wrong !== null) return wrong
    const recordedMs = Date.parse(metadata.recorded_at)
    // If the recording time is missing, this comparison with NaN also fails.
    if (!(recordedMs >= account.recordedAtMs)) return 'has an earlier recording time than the previous event'
    account.recordedAtMs = recordedMs
    const available = availableOf(account, Date.parse(metadata.effective_at))
    if (type === 'CreditCharged' && available < 0n)
      return 'charges more than the balance and overdraft limit allow'
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
