import { randomUUID } from 'node:crypto'
import { callsOfRequest, lastLineOf } from '../../../projections/statement-lines.ts'
import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { rowsOf } from '../../concurrency/query.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { type DecodedEvent, decodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { CreditAdjusted, ReferenceReserved } from '../../events/credits.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { balanceOf } from '../../ledger/account.ts'
import {
  CommandRefused,
  LedgerChanged,
  LedgerOutcomeUnknown,
  LedgerUnavailable,
  refundKeyOf,
} from '../../ledger/command.ts'
import { type CallCost, costsOf } from '../../ledger/explain/call-costs.ts'
import { lotPlacesIn, lotsDrawn } from '../../ledger/explain/lots-drawn.ts'
import { firstInLedger, isOfRequest, ledgerEventAt, ledgerPages } from '../../ledger/read-ledger.ts'
import { requestIdOf } from '../fields.ts'
import { InputFault } from '../input.ts'
import { adjustmentIn, type Corrected, previewed } from './corrections.ts'
import { previewOf, uniqueCommandKey } from './credits.ts'
import { movementKey, refuseShortened, reservationFor, reserve } from './references.ts'

/**
 * A refund returns the cost of a call, or a part of it, to the lots that paid for the call. Refunds, reversals and re-rates of a
 * call never exceed its cost: the remaining cost is computed from the whole ledger, and the ledger refuses the refund if another
 * correction has been written since.
 */

type RefundAsked = {
  readonly requestId: string
  readonly organizationId?: string | undefined
  /** The amount to refund; undefined for the remaining cost of the call. */
  readonly amount?: MicroCredits | undefined
  readonly reason: string
  /** The operator's name for the refund. Only one refund is made under a reference. */
  readonly reference?: string | undefined
  readonly actor: string
  readonly dryRun: boolean
  /** Called with the number of events read so far after the call. */
  readonly onProgress?: (events: number) => void
}

type Refunded = Corrected & {
  readonly organizationId: string
  readonly chargeId: string
  /** The original cost of the call, and its cost after the refund. */
  readonly charged: MicroCredits
  readonly costs: MicroCredits
}

/** Concurrent corrections are rare, so this many failed attempts in a row indicate a fault. */
const attemptsMax = 8

/**
 * Refunds a call once under its reference: a repeated command finds the same refund (`already`). Throws `CommandRefused` or `InputFault` if
 * the call cannot be refunded, `LedgerUnavailable` if nothing was written, and `LedgerOutcomeUnknown` if the refund may have been written.
 */
export const refund = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>,
  given: RefundAsked,
): Promise<Refunded> => {
  const asked = { ...given, requestId: requestIdOf('request', given.requestId) }
  const call = await findCall(foundation, asked)
  const { organizationId, recorded } = call
  const { onProgress } = asked
  const corrections = correctionsAfter(foundation, organizationId, {
    after: recorded.revision,
    ...(onProgress !== undefined && { onRead: ({ revision }) => onProgress(revision - recorded.revision) }),
  })
  return refundFound(foundation, { call, corrections }, asked)
}

/** Refunds a call that was found in the ledger. `corrections` must cover the call's ledger from that call onward, at least. */
export const refundFound = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>,
  { call: found, corrections }: { readonly call: FoundCall; readonly corrections: Corrections },
  asked: Omit<RefundAsked, 'organizationId' | 'onProgress'>,
): Promise<Refunded> => {
  const { organizationId, recorded } = found
  const { eventLog, ledger, pool } = foundation
  const named = namedBy(organizationId, asked)
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    let reserved = named === null ? null : await reservationFor(foundation, named)
    // The account is read before the ledger, so that the ledger includes every correction that the account includes.
    const account = await ledger.account(organizationId)
    await corrections.read()
    const read = await costOfFound(foundation, { call: found, corrections }, asked)
    const { cost, there, upTo } = read
    // The refund was written after the reservation was read, so the reservation is read again.
    if (there !== null && reserved === null) continue
    if (there !== null && cost.charge !== null) {
      const { micro: charged, charge_id: chargeId } = cost.charge
      const figures = { organizationId, chargeId, charged, costs: cost.now }
      return { ...figures, ...there, balance: balanceOf(account, Date.now()), already: true }
    }
    if (reserved !== null) refuseShortened(reserved, upTo)
    const { charge, amount } = refundable(cost, { ...asked, amount: amountIn(reserved) ?? asked.amount })
    if (named !== null && reserved === null && !asked.dryRun) {
      const { actor } = asked
      reserved = await reserve(foundation, named, { actor, amount, whole: amount === cost.now })
      // Another process reserved the reference first, with a different amount.
      if (amountIn(reserved) !== amount) continue
    }
    const command = {
      ...({ kind: 'adjust', correction: 'refund', adjusts: charge.charge_id, rerateRun: null } as const),
      amount,
      reason: asked.reason,
      actor: asked.actor,
      ...(asked.reference === undefined ? {} : { reference: asked.reference }),
      chargedAt: new Date(cost.call.atMs).toISOString(),
      into: await lotsDrawn({ eventLog, lotPlaces: lotPlacesIn(pool) }, organizationId, cost),
      unlessAdjustedAfter: upTo,
    }
    const figures = {
      organizationId,
      chargeId: charge.charge_id,
      charged: charge.micro,
      costs: cost.now - amount,
    }
    try {
      if (asked.dryRun)
        return { ...figures, ...previewed(await previewOf(foundation, organizationId, command)) }
      // The request id shows whether this process or another one wrote the event under this key.
      const requestId = randomUUID()
      const committed = await ledger.submit(organizationId, {
        ...command,
        ...keyFor(read, recorded, asked),
        requestId,
        atMs: Date.now(),
      })
      const { balance, revision } = committed
      if (committed.requestId === requestId)
        return { ...figures, adjusted: adjustmentIn(committed.events[0]), balance, revision, already: false }
    } catch (error) {
      if (error instanceof LedgerUnavailable || error instanceof LedgerOutcomeUnknown)
        throw notConfirmed(error, asked.requestId)
      if (!(error instanceof LedgerChanged)) throw error
    }
  }
  throw new CorrectedMeanwhile(
    `the ledger of ${organizationId} was corrected ${attemptsMax} times while the refund was being calculated; try again`,
  )
}

/** Nothing was written, because at every attempt another correction was written first. */
export class CorrectedMeanwhile extends CommandRefused {
  override name = 'CorrectedMeanwhile'
}

const namedBy = (
  organizationId: string,
  { reference, requestId, amount }: Pick<RefundAsked, 'reference' | 'requestId' | 'amount'>,
) => {
  if (reference === undefined) return null
  const named = {
    movement: 'refund',
    amount: amount ?? null,
    priority: null,
    expiresAt: null,
    requestId,
  } as const
  return { organizationId, reference, named }
}

const amountIn = (reserved: ReferenceReserved | null): MicroCredits | undefined =>
  reserved === null ? undefined : parseCredits(reserved.amount)

/** The first refund of a call and its reversal have the same key, so that only one of them can be written. */
const keyFor = (
  { refunded, upTo }: Pick<CostRead, 'refunded' | 'upTo'>,
  call: RecordedEvent,
  { reference }: Pick<RefundAsked, 'reference'>,
): { key: string; absentUpTo?: number } => {
  if (!refunded) return { key: refundKeyOf(call.id), absentUpTo: upTo }
  return reference === undefined
    ? { key: uniqueCommandKey('refund') }
    : { key: movementKey('refund', reference), absentUpTo: upTo }
}

const notConfirmed = (cause: LedgerUnavailable | LedgerOutcomeUnknown, requestId: string): Error => {
  const check = `"credits refund ${requestId} --dry-run" shows the current cost of the call`
  return cause instanceof LedgerOutcomeUnknown
    ? new LedgerOutcomeUnknown(`${cause.message}. The refund may still be written: ${check}`, { cause })
    : new LedgerUnavailable(`${cause.message}. The refund was not written: ${check}`, { cause })
}

type Charge = NonNullable<CallCost['charge']>

/** The charge of a call and the amount to refund. Throws `CommandRefused` or `InputFault` if this amount cannot be refunded. */
export const refundable = (
  { charge, adjustments, now }: CallCost,
  { requestId, amount = now }: Pick<RefundAsked, 'requestId' | 'amount'>,
): { charge: Charge; amount: MicroCredits } => {
  if (charge === null)
    throw new CommandRefused(
      now > 0n
        ? `call ${requestId} was free, and a re-rate made it cost ${formatCredits(now)}: give the amount back with "credits adjust"`
        : `call ${requestId} cost nothing: there is nothing to refund`,
    )
  const given = adjustments
    .map(
      ({ kind, amount: part, at }) =>
        `${part < 0n ? `${formatCredits(-part)} taken` : `${formatCredits(part)} given back`} at ${at} (${kind})`,
    )
    .join(', ')
  const since = given === '' ? '' : `; since then: ${given}`
  if (now <= 0n)
    throw new CommandRefused(
      `call ${requestId} has nothing left to refund: it was charged ${charge.amount}${since}`,
    )
  if (amount > now)
    throw new InputFault(
      'amount',
      `call ${requestId} costs ${formatCredits(now)} now, which is less than ${formatCredits(amount)}: it was charged ${charge.amount}${since}`,
    )
  return { charge, amount }
}

type CostRead = {
  readonly cost: CallCost
  /** Whether the first refund or a reversal of the call exists. */
  readonly refunded: boolean
  /** The existing refund under the given reference; null if there is none. */
  readonly there: { readonly adjusted: CreditAdjusted; readonly revision: number } | null
  readonly upTo: number
}

/** The corrections of a ledger after a revision. `read` continues up to the current end of the ledger. */
export type Corrections = {
  readonly read: () => Promise<void>
  readonly events: readonly DecodedEvent[]
  readonly upTo: () => number
}

export const correctionsAfter = (
  { eventLog }: Log,
  organizationId: string,
  { after, onRead }: { readonly after: number; readonly onRead?: (recorded: RecordedEvent) => void },
): Corrections => {
  const events: DecodedEvent[] = []
  let upTo = after
  const read = async (): Promise<void> => {
    for await (const page of ledgerPages(eventLog, organizationId, upTo + 1))
      for (const recorded of page) {
        if (recorded.type === 'CreditAdjusted') events.push(decodeEvent(recorded))
        onRead?.(recorded)
        upTo = recorded.revision
      }
  }
  return { read, events, upTo: () => upTo }
}

/** The cost of a call according to its ledger and the corrections read so far. */
export const costOfFound = async (
  { eventLog }: Log,
  { call, corrections }: { readonly call: FoundCall; readonly corrections: Corrections },
  { requestId, reference }: Pick<RefundAsked, 'requestId' | 'reference'>,
): Promise<CostRead> => {
  const { organizationId, recorded, charge } = call
  const refundId = eventIdOf(organizationId, refundKeyOf(recorded.id), 0)
  const charged = charge === null ? [] : [decodeEvent(charge)]
  const chargeId = charged.flatMap(({ type, data }) => (type === 'CreditCharged' ? [data.charge_id] : []))[0]
  let refunded = false
  let there: CostRead['there'] = null
  const own: DecodedEvent[] = []
  for (const event of corrections.events) {
    if (event.type !== 'CreditAdjusted' || event.recorded.revision <= recorded.revision) continue
    // The event of a re-rate names no charge, so the event is kept, and `costsOf` checks whether the re-rate changed this call.
    if (event.data.adjusts !== null && event.data.adjusts !== chargeId) continue
    refunded ||= event.recorded.id === refundId
    if (isRefundUnder(event.data, reference))
      there = { adjusted: event.data, revision: event.recorded.revision }
    own.push(event)
  }
  const cost = await costsOf([decodeEvent(recorded), ...charged, ...own], { requestId }, { eventLog })
  if (cost === null) throw new Error(`event ${recorded.id} of ${organizationId} is not call ${requestId}`)
  return { cost, refunded, there, upTo: corrections.upTo() }
}

/** Identifies a refund by its reference, because a reversal has the same id as the first refund of a call. */
const isRefundUnder = ({ kind, reference: own }: CreditAdjusted, reference: string | undefined): boolean =>
  kind === 'refund' && reference !== undefined && own === reference

/** A call's `KeyUsed` event, and the charge that follows it; null if the call was not charged. */
export type FoundCall = {
  readonly organizationId: string
  readonly recorded: RecordedEvent
  readonly charge: RecordedEvent | null
}

type Log = Pick<Foundation, 'eventLog'>

export class CallNotFound extends CommandRefused {
  override name = 'CallNotFound'
}

/**
 * Finds a call by its request id. If it is recorded more than once, the record with a charge counts. Statement rows only locate the
 * events. If the rows lead to no charge, the ledger of the given organization is read: first the events after its last statement
 * row, then the events before. Throws `CallNotFound` if the call does not exist.
 */
const findCall = async (
  { eventLog, pool }: Pick<Foundation, 'eventLog' | 'pool'>,
  { requestId, organizationId }: { requestId: string; organizationId?: string | undefined },
): Promise<FoundCall> => {
  const rows = await rowsOf(pool, callsOfRequest(requestId, organizationId ?? null))
  let found: FoundCall | null = null
  for (const { organization_id, revision } of rows) {
    const there = await callAt(
      { eventLog },
      { organizationId: organization_id, requestId, revision: Number(revision) },
    )
    if (there !== null && there.charge !== null) return there
    found ??= there
  }
  if (organizationId === undefined) {
    if (found !== null) return found
    throw new CallNotFound(
      `no statement contains a call with the request id ${requestId}; to search a ledger itself, add --org ORGANIZATION`,
    )
  }
  const [line] = await rowsOf(pool, lastLineOf(organizationId))
  const from = line?.revision == null ? 0 : Number(line.revision) + 1
  const read =
    (await readFor({ eventLog }, { organizationId, requestId, from })) ??
    found ??
    (await readFor({ eventLog }, { organizationId, requestId, before: from }))
  if (read === null)
    throw new CallNotFound(
      `the ledger of ${organizationId} contains no call with the request id ${requestId}`,
    )
  return read
}

type Wanted = { readonly organizationId: string; readonly requestId: string }

const callAt = async (
  { eventLog }: Log,
  { organizationId, requestId, revision }: Wanted & { revision: number },
): Promise<FoundCall | null> => {
  const recorded = await ledgerEventAt(eventLog, organizationId, revision)
  if (recorded === null || !isOfRequest(recorded, 'KeyUsed', requestId)) return null
  const next = await ledgerEventAt(eventLog, organizationId, revision + 1)
  const charge = next !== null && isOfRequest(next, 'CreditCharged', requestId) ? next : null
  return { organizationId, recorded, charge }
}

/** Searches a part of a ledger for the record of a call with a charge. If no charge is found, returns the record alone. */
const readFor = async (
  { eventLog }: Log,
  { organizationId, requestId, ...range }: Wanted & { from?: number; before?: number },
): Promise<FoundCall | null> => {
  let free: RecordedEvent | null = null
  const fits = (recorded: RecordedEvent): boolean => {
    if (isOfRequest(recorded, 'KeyUsed', requestId)) free ??= recorded
    return isOfRequest(recorded, 'CreditCharged', requestId)
  }
  const charge = await firstInLedger(eventLog, organizationId, { ...range, fits })
  if (charge !== null)
    return callAt({ eventLog }, { organizationId, requestId, revision: charge.revision - 1 })
  return free === null ? null : { organizationId, recorded: free, charge: null }
}
