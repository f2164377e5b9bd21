import type pg from 'pg'
import {
  correctionsAfter,
  movedBefore,
  movementOf,
  placesOfLots,
  placesOfOverrides,
  placesOfRequest,
  replaysOf,
} from '../../../projections/ledger-index.ts'
import type { Query } from '../../../projections/projection.ts'
import type { MicroCredits } from '../../billing/money.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { type EventLog, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import { ledgerStream } from '../../events/streams.ts'
import { notePrice, type OwnPrices, pricesAt } from '../prices/own-prices.ts'

/**
 * Collects a ledger's records about one call. Only the revision of the call comes from the read models. Everything else is read from the
 * ledger, so if that revision is wrong, the call is not found.
 */

type CallEvent = DecodedEvent & DomainEventOf<'KeyUsed'>
type ChargeEvent = DecodedEvent & DomainEventOf<'CreditCharged'>
export type RecordedCall = { readonly call: CallEvent; readonly charge: ChargeEvent | null }

export type CallEvidence = {
  readonly organizationId: string
  /** All records of the request, in ledger order. A call that fails after it was recorded is recorded a second time, as failed. */
  readonly calls: readonly [RecordedCall, ...RecordedCall[]]
  /** The sum of all movements before the first record. */
  readonly balanceBefore: MicroCredits
  /** By lot id, the events that opened the lots that paid for the call. An event that cannot be found is missing here. */
  readonly lots: ReadonlyMap<string, DecodedEvent>
  /** By SKU, the events that set the organization's own prices at the time of the call. */
  readonly overrides: ReadonlyMap<string, DecodedEvent>
  /** The corrections of the charge, and re-rates that may have corrected it, in ledger order. */
  readonly corrections: readonly DecodedEvent[]
  /** The later calls that repeated the answer of this call. */
  readonly replays: readonly DecodedEvent[]
  /** The last event that was read. */
  readonly head: RecordedEvent
}

type CallSources = { readonly pool: pg.Pool; readonly eventLog: Pick<EventLog, 'read'> }

/** The read models are so far behind that reading the missing events would take too long. */
export class FarBehind extends Unavailable {
  override name = 'FarBehind'
}

type CallWanted = {
  readonly organizationId: string
  readonly requestId: string
  /** The maximum number of events by which the read models can be behind. */
  readonly tailMax: number
}

const pageMax = 1_000
/** The maximum number of records of one request. Normally, a request is recorded once, or twice if it failed. */
const callsMax = 10
const correctionsMax = 1_000
const replaysMax = 100
const overridesMax = 50
const lotsMax = 100

/**
 * Finds a call. Returns null if the ledger does not contain an individual record of it. Throws `FarBehind`, and the errors of the event
 * log and the database.
 */
export const findCall = async (sources: CallSources, wanted: CallWanted): Promise<CallEvidence | null> => {
  const { organizationId, requestId } = wanted
  const rows = await rowsOf(sources.pool, placesOfRequest(organizationId, { requestId, max: callsMax }))
  const tail = await readTail(sources, wanted, Number(rows[0]?.indexed ?? -1))
  const { indexed } = tail
  const places = rows.flatMap(({ revision }) => (revision === null ? [] : [Number(revision)]))
  const found = await Promise.all(
    places.filter((revision) => revision <= indexed).map((revision) => readCall(sources, wanted, revision)),
  )
  const [first, ...others] = [...found.filter((one) => one !== null), ...callsIn(tail.events, requestId)]
  const head = tail.events.at(-1) ?? tail.before
  if (first === undefined || head === undefined) return null
  const calls = [first, ...others] as const
  const { charge } = mainCall(calls)
  const from = first.call.recorded.revision
  const chargeId = charge?.data.charge_id ?? null
  const asked = { revision: from, chargeId, max: correctionsMax }
  return {
    organizationId,
    calls,
    head,
    balanceBefore: await balanceBefore(sources, {
      organizationId,
      revision: from,
      indexed,
      tail: tail.events,
    }),
    lots: await lotsOf(sources, { organizationId, charge, tail: tail.events }),
    overrides: await overridesOf(sources, { organizationId, ...mainCall(calls), tail }),
    corrections: [
      ...(await readPlaces(sources, organizationId, correctionsAfter(organizationId, asked), indexed)),
      ...decodedIn(tail.events, ({ type }) => type === 'CreditAdjusted'),
    ],
    replays: [
      ...(await readPlaces(
        sources,
        organizationId,
        replaysOf(organizationId, { repeats: requestId, max: replaysMax }),
        indexed,
      )),
      ...decodedIn(tail.events, ({ metadata }) => metadata.includes('"repeats"')),
    ].filter(({ metadata }) => metadata.repeats === requestId),
  }
}

/** Returns the charged record or, if there is none, the first answered record. If there is neither, returns the first record. */
export const mainCall = (calls: CallEvidence['calls']): RecordedCall =>
  calls.find(({ charge }) => charge !== null) ??
  calls.find(({ call }) => call.data.outcome === 'answered') ??
  calls[0]

const readPage = ({ eventLog }: CallSources, organizationId: string, from: number, max: number) =>
  readIfAny(eventLog, ledgerStream(organizationId), { from, max })

/** The event at `indexed` and the events after it. */
type LedgerTail = {
  readonly indexed: number
  readonly events: readonly RecordedEvent[]
  readonly before: RecordedEvent | undefined
}

const readTail = async (
  sources: CallSources,
  { organizationId, tailMax }: CallWanted,
  indexed: number,
): Promise<LedgerTail> => {
  const events: RecordedEvent[] = []
  for (let from = Math.max(0, indexed); ; ) {
    const page = await readPage(sources, organizationId, from, pageMax)
    events.push(...page)
    if (page.length < pageMax) break
    if (events.length > tailMax)
      throw new FarBehind(`the read models are more than ${tailMax} events behind this ledger`)
    from += page.length
  }
  const [before, next] = events
  // The read models possibly do not contain this call's charge yet, so the line of the call is not used.
  const isCut = before?.type === 'KeyUsed' && next?.type === 'CreditCharged'
  return indexed < 0 || isCut
    ? { indexed: Math.max(-1, indexed - 1), events, before: undefined }
    : { indexed, events: events.slice(1), before }
}

const readCall = async (
  sources: CallSources,
  { organizationId, requestId }: CallWanted,
  revision: number,
): Promise<RecordedCall | null> =>
  callsIn(await readPage(sources, organizationId, revision, 2), requestId).find(
    ({ call }) => call.recorded.revision === revision,
  ) ?? null

/** The records of a request in consecutive events. */
const callsIn = (events: readonly RecordedEvent[], requestId: string): RecordedCall[] =>
  events.flatMap((recorded, i) => {
    // Searching the text is much faster than parsing it. Other events that match are filtered out below.
    if (recorded.type !== 'KeyUsed' || !recorded.metadata.includes(requestId)) return []
    const call = decodeEvent(recorded)
    if (call.type !== 'KeyUsed' || call.metadata.request_id !== requestId) return []
    const next = events[i + 1]
    const charge = next?.type === 'CreditCharged' ? decodeEvent(next) : null
    const isIts = charge?.type === 'CreditCharged' && charge.metadata.causation_id === recorded.id
    return [{ call, charge: isIts ? charge : null }]
  })

const decodedIn = (
  events: readonly RecordedEvent[],
  wanted: (event: RecordedEvent) => boolean,
): DecodedEvent[] => events.filter(wanted).map(decodeEvent)

const readPlaces = async (
  sources: CallSources,
  organizationId: string,
  places: Query<{ revision: string }>,
  upTo: number,
): Promise<DecodedEvent[]> => {
  const found: DecodedEvent[] = []
  for (const { revision } of await rowsOf(sources.pool, places)) {
    if (Number(revision) > upTo) continue
    const [event] = await readPage(sources, organizationId, Number(revision), 1)
    if (event !== undefined) found.push(decodeEvent(event))
  }
  return found
}

const balanceBefore = async (
  sources: CallSources,
  {
    organizationId,
    revision,
    indexed,
    tail,
  }: { organizationId: string; revision: number; indexed: number; tail: readonly RecordedEvent[] },
): Promise<MicroCredits> => {
  const [row] = await rowsOf(sources.pool, movedBefore(organizationId, Math.min(revision, indexed + 1)))
  const behind = tail.filter((event) => event.revision < revision).map(decodeEvent)
  return behind.reduce((sum, event) => sum + movementOf(event), BigInt(row?.amount_micro ?? 0))
}

const lotsOf = async (
  sources: CallSources,
  {
    organizationId,
    charge,
    tail,
  }: { organizationId: string; charge: ChargeEvent | null; tail: readonly RecordedEvent[] },
): Promise<Map<string, DecodedEvent>> => {
  const ids = charge?.data.allocations.slice(0, lotsMax).map(({ grant_id }) => grant_id) ?? []
  const lots = new Map<string, DecodedEvent>()
  if (ids.length === 0) return lots
  for (const event of decodedIn(tail, ({ type }) => openers.has(type))) {
    const lotId = lotIdOf(event)
    if (lotId !== null && ids.includes(lotId)) lots.set(lotId, event)
  }
  for (const { grant_id, revision } of await rowsOf(sources.pool, placesOfLots(organizationId, ids))) {
    const [event] = (await readPage(sources, organizationId, Number(revision), 1)).map(decodeEvent)
    if (event !== undefined && lotIdOf(event) === grant_id) lots.set(grant_id, event)
  }
  return lots
}

const openers = new Set(['CreditGranted', 'CreditAdjusted'])

/** The id of the lot that an event opens, or null. */
const lotIdOf = ({ type, data }: DecodedEvent): string | null => {
  if (type === 'CreditGranted') return data.grant_id
  return type === 'CreditAdjusted' ? data.adjustment_id : null
}

const overridesOf = async (
  sources: CallSources,
  { organizationId, call, charge, tail }: RecordedCall & { organizationId: string; tail: LedgerTail },
): Promise<Map<string, DecodedEvent>> => {
  const skus = charge?.data.lines.map(({ sku }) => sku) ?? []
  const before = call.recorded.revision
  const places = placesOfOverrides(organizationId, { skus, before, max: overridesMax })
  const known = skus.length === 0 ? [] : await readPlaces(sources, organizationId, places, tail.indexed)
  const ownPrices: OwnPrices = new Map()
  for (const event of known.toReversed()) notePrice(ownPrices, event)
  for (const event of tail.events)
    if (event.type.startsWith('PriceOverride') && event.revision < before)
      notePrice(ownPrices, decodeEvent(event))
  return pricesAt(ownPrices, Date.parse(call.metadata.effective_at))
}

/**
 * Like `findCall`, but reads the whole ledger and no read models. Returns null if the ledger does not contain an individual record of
 * the call. Throws `StreamMissing` if the ledger does not exist.
 */
export const findCallInAll = async (
  eventLog: Pick<EventLog, 'read'>,
  { organizationId, requestId }: { organizationId: string; requestId: string },
  onProgress: (events: number) => void = () => undefined,
): Promise<CallEvidence | null> => {
  const stream = ledgerStream(organizationId)
  const calls: RecordedCall[] = []
  const corrections: DecodedEvent[] = []
  const replays: DecodedEvent[] = []
  const lots = new Map<string, DecodedEvent>()
  const ownPrices: OwnPrices = new Map()
  let balance = 0n
  let balanceBefore = 0n
  let head: CallEvidence['head'] | undefined
  for (let from = 0; ; ) {
    // One more event is read than processed, so that a call and its charge are always on the same page.
    const page = await eventLog.read(stream, { from, max: pageMax + 1 })
    const events = page.slice(0, pageMax)
    for (const [i, recorded] of events.entries()) {
      const event = decodeEvent(recorded)
      const [found] = callsIn(page.slice(i, i + 2), requestId).filter(
        ({ call }) => call.recorded === recorded,
      )
      if (found !== undefined) {
        if (calls.length === 0) balanceBefore = balance
        calls.push(found)
      } else if (event.metadata.repeats === requestId) replays.push(event)
      const opened = lotIdOf(event)
      if (opened !== null && calls.length === 0) lots.set(opened, event)
      if (event.type === 'CreditAdjusted' && calls.length > 0) corrections.push(event)
      if (calls.length === 0) notePrice(ownPrices, event)
      balance += movementOf(event)
    }
    head = events.at(-1) ?? head
    from += events.length
    onProgress(from)
    if (page.length <= pageMax) break
  }
  const [first, ...others] = calls
  if (first === undefined || head === undefined) return null
  return {
    organizationId,
    calls: [first, ...others],
    balanceBefore,
    lots,
    overrides: pricesAt(ownPrices, Date.parse(first.call.metadata.effective_at)),
    corrections,
    replays,
    head,
  }
}
