import { randomUUID } from 'node:crypto'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../event-log/stored-event.ts'
import type { LotFill } from '../events/credits.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { settlementKeyOf } from '../ledger/abandoned.ts'
import { type CallCost, costsOf } from '../ledger/call-costs.ts'
import { adjustedMeanwhile } from '../ledger/command.ts'
import { CommandRefused, LedgerUnavailable } from '../ledger/commit.ts'
import { drawnStill } from '../ledger/granted-lot.ts'
import { ledgerPages } from '../ledger/read-ledger.ts'
import { adjustmentIn, type Corrected, previewed } from './corrections.ts'
import { previewOf, uniqueCommandKey } from './credits.ts'
import { findCall } from './find-call.ts'
import { InputFault } from './input.ts'
import { grantedLots } from './lots.ts'

/**
 * Refunds: what a call cost, or a part of it, goes back into the lots it was drawn from. All refunds of a call, with reversals and
 * re-rates, are never more than it cost: what it still costs is worked out from the ledger up to its end, and the ledger refuses
 * the refund where another correction came in between.
 */

type RefundAsked = {
  readonly requestId: string
  readonly organizationId?: string | undefined
  /** Undefined: all that the call still costs. */
  readonly amount?: MicroCredits | undefined
  readonly reason: string
  readonly actor: string
  /** Nothing is written. */
  readonly dryRun: boolean
  /** How many events after the call were read. */
  readonly onProgress?: (events: number) => void
}

type Refunded = Corrected & {
  readonly organizationId: string
  readonly chargeId: string
  /** What the call cost at first, and what it costs after the refund. */
  readonly charged: MicroCredits
  readonly costs: MicroCredits
}

/** Corrections that come in between are rare: so many in a row are a fault. */
const attemptsMax = 8

/**
 * Refunds a call. Throws `CommandRefused` for a request that is not known, a call that cost nothing, and where less is left to
 * refund than is asked for; `LedgerUnavailable` where it is unknown what became of it.
 */
export const refund = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>,
  asked: RefundAsked,
): Promise<Refunded> => {
  const { organizationId, recorded } = await findCall(foundation, asked)
  const { eventLog, ledger } = foundation
  for (let attempt = 1; ; attempt++) {
    // Folded before the ledger is read: a correction that the account knows of is in what is read.
    await ledger.account(organizationId)
    const { cost, settled, upTo } = await readCost(eventLog, { ...asked, organizationId, call: recorded })
    const { charge, amount } = refundable(cost, asked)
    const command = {
      kind: 'adjust',
      correction: 'refund',
      adjusts: charge.charge_id,
      amount,
      reason: asked.reason,
      rerateRun: null,
      into: await lotsDrawn(foundation, organizationId, cost),
      unlessAdjustedAfter: upTo,
      actor: asked.actor,
    } as const
    const figures = {
      organizationId,
      chargeId: charge.charge_id,
      charged: charge.micro,
      costs: cost.now - amount,
    }
    try {
      if (asked.dryRun)
        return { ...figures, ...previewed(await previewOf(foundation, organizationId, command)) }
      // Told apart from what another process may have written under the same key.
      const requestId = randomUUID()
      const committed = await ledger.submit(organizationId, {
        ...command,
        // The first one, and the reversal of an answer that was never delivered, exclude each other.
        ...(settled
          ? { key: uniqueCommandKey('refund') }
          : { key: settlementKeyOf(recorded.id), absentUpTo: upTo }),
        requestId,
        atMs: Date.now(),
      })
      const { balance, revision } = committed
      if (committed.requestId === requestId)
        return { ...figures, adjusted: adjustmentIn(committed.events[0]), balance, revision, already: false }
    } catch (error) {
      if (error instanceof LedgerUnavailable) throw unheard(error, asked.requestId)
      if (!(error instanceof CommandRefused && error.message.startsWith(adjustedMeanwhile))) throw error
    }
    if (attempt === attemptsMax)
      throw new CommandRefused(
        `the ledger of ${organizationId} was corrected ${attemptsMax} times while the refund was worked out; try again`,
      )
  }
}

const unheard = (cause: LedgerUnavailable, requestId: string): Error =>
  new LedgerUnavailable(
    `${cause.message}. ${cause.mayArrive ? 'The refund may be written still' : 'The refund was not written'}: "credits refund ${requestId} --dry-run" says what the call costs now`,
    { cause, mayArrive: cause.mayArrive },
  )

type Charge = NonNullable<CallCost['charge']>

/** The charge and what of it is refunded. Throws `CommandRefused` and `InputFault`. */
const refundable = (
  { charge, adjustments, now }: CallCost,
  { requestId, amount = now }: RefundAsked,
): { charge: Charge; amount: MicroCredits } => {
  if (charge === null)
    throw new CommandRefused(
      now > 0n
        ? `call ${requestId} was free, and a re-rate made it cost ${formatCredits(now)}: give that back with "credits adjust"`
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

/** The lots a call was drawn from, as they take its credits back. */
const lotsDrawn = async (
  foundation: Pick<Foundation, 'eventLog' | 'pool'>,
  organizationId: string,
  { charge, adjustments }: CallCost,
): Promise<LotFill[]> => {
  const ownFills = adjustments.flatMap(({ rerateRun, fills }) => (rerateRun === null ? fills : []))
  const drawn = drawnStill(charge?.allocations ?? [], ownFills)
  const lots = await grantedLots(
    foundation,
    organizationId,
    drawn.map(({ grant_id }) => grant_id),
  )
  return drawn.flatMap(({ grant_id, amount }) => {
    const lot = lots.get(grant_id)
    if (lot === undefined) return []
    const { priority, expires_at, revision, granted } = lot
    return { grant_id, amount, priority, expires_at, revision, granted }
  })
}

/** What a call costs by the ledger from the call on, up to its end, and whether anything has settled the charge by its key. */
const readCost = async (
  eventLog: Foundation['eventLog'],
  {
    organizationId,
    call,
    requestId,
    onProgress,
  }: Pick<RefundAsked, 'requestId' | 'onProgress'> & { organizationId: string; call: RecordedEvent },
): Promise<{ cost: CallCost; settled: boolean; upTo: number }> => {
  const settlementId = eventIdOf(organizationId, settlementKeyOf(call.id), 0)
  let settled = false
  let upTo = call.revision
  async function* events(): AsyncGenerator<DecodedEvent> {
    for await (const page of ledgerPages(eventLog, organizationId, call.revision)) {
      for (const recorded of page) {
        settled ||= recorded.id === settlementId
        upTo = recorded.revision
        yield decodeEvent(recorded)
      }
      onProgress?.(upTo - call.revision)
    }
  }
  const cost = await costsOf(events(), { requestId }, { eventLog })
  if (cost === null)
    throw new CommandRefused(`the ledger of ${organizationId} no longer holds call ${requestId}`)
  return { cost, settled, upTo }
}
