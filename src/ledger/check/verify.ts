import { formatCredits, type MicroCredits } from '../../billing/money.ts'
import { closingGapMax, type Month } from '../../billing/months.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import { movementOf } from '../../billing/statement.ts'
import { hasLines } from '../../billing/statement-line.ts'
import { genesisDigest, recompute } from '../../event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { readOpenable } from '../../event-log/read-openable.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { checkEventData, isEventType, type LedgerEvent } from '../../events/catalogue.ts'
import { ledgerStream } from '../../events/streams.ts'
import { type Account, availableOf, evolve, newAccount } from '../account.ts'
import { type Contradicted, type Recomputing, recomputing } from './recompute.ts'

/** The first event of a ledger that is not as it was written, and why. `event_id` is null where an event is missing. */
export type LedgerFault = {
  readonly revision: number
  readonly event_id: string | null
  readonly type: string | null
  /** The digest of the bytes there, or the digest before them where an event is missing: an acknowledgement names it. */
  readonly digest: string
  readonly fault: string
}

type LedgerVerdict = {
  readonly organizationId: string
  readonly events: number
  readonly digest: string
  /** As far as the ledger could be folded. */
  readonly account: Account
  /** The first broken event; null for a ledger without faults but known ones. */
  readonly fault: LedgerFault | null
  /** Faults an operator has acknowledged. */
  readonly known: readonly LedgerFault[]
  /** Price books that were changed after they had priced charges of this ledger. */
  readonly contradicted: readonly Contradicted[]
}

/** Other records about a ledger. Each was written separately, and the ledger must agree with it. */
export type LedgerWitness = {
  /** The name of the record, for people. */
  readonly name: string
  readonly revision: number
  /** The digest of the event at that revision, where the witness knows it. */
  readonly digest?: string
}

type VerifyOptions = {
  /** Asked before the ledger is read, because the ledger may grow in the meantime. */
  readonly witnesses?: readonly LedgerWitness[]
  /** Whether a fault with these bytes at this revision is known already. */
  readonly acknowledged?: (revision: number, digest: string) => boolean
  /** Every price book that was published and not withdrawn, to recompute charges. Default: charges are not recomputed. */
  readonly books?: readonly PriceBook[]
  readonly onProgress?: (events: number) => void
}

const pageMax = 1_000

/**
 * Recomputes the hash chain of a ledger from its first event and folds it as it goes: every digest, contiguous
 * revisions, no event or charge id twice, data that fits its schema, no charge beyond the overdraft limit, none that its facts, the
 * tariff and the price book in force do not give, nothing recorded before what it follows, no lot written off before it had expired, no month closed at another balance than its events come to. Then compares its end with the engine's own last revision and with every witness. Stops at the first fault that was not acknowledged.
 */
export const verifyLedger = async (
  eventLog: Pick<EventLog, 'read' | 'lastRevision'>,
  organizationId: string,
  { witnesses = [], acknowledged = () => false, books, onProgress }: VerifyOptions = {},
): Promise<LedgerVerdict> => {
  const stream = ledgerStream(organizationId)
  const engine = await eventLog.lastRevision(stream)
  const records = [
    ...witnesses,
    ...(engine === null ? [] : [{ name: 'the event log itself', revision: engine }]),
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
  /** Whether to continue. */
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
      // The events after a known fault were chained to the digest it carries.
      digest = carried ?? computed
      events = recorded.revision + 1
    }
    onProgress?.(events)
    // Nothing after it can be judged: the next event was chained to it.
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
      .map(({ name, revision }) => `${name} knows revision ${revision}`)
      .join(' and ')}: its end is missing`,
  }
  return verdict(isKnown(fault) ? null : fault)
}

/** Why a lot cannot have been written off at that time; null: it can. Asked before the event is folded into the account. */
const expiryFault = (account: Account, { type, data, metadata }: DecodedEvent): string | null => {
  if (type !== 'CreditExpired') return null
  const { effective_at, recorded_at } = metadata
  const lot = account.lots.find(({ grantId }) => grantId === data.grant_id)
  if (lot !== undefined && Date.parse(effective_at) < lot.expiresAtMs)
    return `writes off lot ${lot.grantId} as of ${effective_at}, before it expired`
  return recorded_at !== undefined && Date.parse(effective_at) > Date.parse(recorded_at)
    ? `writes off lot ${data.grant_id} as of ${effective_at}, and was recorded before that, at ${recorded_at}`
    : null
}

/**
 * Says why a closing does not match the ledger: its balance, or the revision at which the next month begins. Statements begin with
 * both. The function that it returns must be called for every event, in order.
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
      // Of two closings at the same time, the later month's came first, and it decided which events count in this month.
      if (month <= closedUpTo) return null
      closedUpTo = month
      let balance = 0n
      let begins = through + 1
      for (const [one, { net, first }] of months)
        if (one <= month) balance += net
        else if (first < begins) begins = first
      for (const one of late) if (one.revision > through && one.month <= month) balance -= one.net
      if (totals.closing !== formatCredits(balance))
        return `closes ${month} at a balance of ${totals.closing} credits; its events come to ${formatCredits(balance)}`
      const before = prices.filter((one) => one < next.revision)
      return next.revision > begins || before.join() !== next.prices.join()
        ? `does not say where the month after ${month} begins: at revision ${begins}`
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
  return other === undefined ? null : `${other.name} knows a different event at this revision`
}

/** Ids met so far. A single Set ends at 2^24 entries, which a busy ledger has after some years. */
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
    /** Whether the account still matches the ledger. Rules can be checked only on such an account. */
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
  if (carried === null) return 'carries no digest'
  if (carried !== computed)
    return 'its bytes do not give the digest it carries: it, or the event before it, was changed'
  if (seen.has(recorded.id)) return 'its event id is in this ledger twice'
  seen.add(recorded.id)
  try {
    const decoded = decodeEvent(recorded)
    const { type, data, metadata } = decoded
    if (isEventType(recorded.type))
      checkEventData(recorded.type, metadata.schema_version, JSON.parse(recorded.data))
    if (type === 'CreditCharged') {
      // A charge id is its event's id; any other id would have to be new as well.
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
    evolve(account, { type, data } as LedgerEvent, recorded.revision)
    folding.sound = true
    if (wrong !== null) return wrong
    const recordedMs = Date.parse(metadata.recorded_at)
    // Not a number where it does not say when.
    if (!(recordedMs >= account.recordedAtMs)) return 'claims to be recorded before the event it follows'
    account.recordedAtMs = recordedMs
    const available = availableOf(account, Date.parse(metadata.effective_at))
    if (type === 'CreditCharged' && available < 0n)
      return 'charges more than the balance and overdraft limit allow'
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
