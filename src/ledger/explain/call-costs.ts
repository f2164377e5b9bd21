import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { EventLog } from '../../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'
import type { CreditAdjusted, LotFill } from '../../events/credits.ts'
import { organizationOfStream } from '../../events/streams.ts'
import { ledgerPages } from '../read-ledger.ts'
import { type CostSoFar, costOf, givenBackOf, partOf } from '../rerate/part.ts'
import { finishedRun } from './corrected-costs.ts'

/** The current cost of a call is its charge, minus refunds and reversals, plus or minus the changes by re-rates. */

type CallWanted = { readonly requestId: string } | { readonly chargeId: string }

type CostedCall = {
  readonly revision: number
  readonly eventId: string
  readonly requestId: string | null
  readonly facts: CallFacts
  readonly atMs: number
}

type CallCharge = DomainEventOf<'CreditCharged'>['data'] & {
  readonly revision: number
  readonly micro: MicroCredits
}

/** `amount` is the amount by which the call's cost was reduced, or increased if it is negative. For a re-rate, it is this call's part. */
type CallAdjustment = {
  readonly revision: number
  readonly adjustmentId: string
  readonly kind: CreditAdjusted['kind']
  readonly amount: MicroCredits
  readonly fills: readonly LotFill[]
  readonly rerateRun: string | null
  readonly reason: string
  readonly at: string
}

export type CallCost = {
  readonly call: CostedCall
  /** Null if the call was originally free. */
  readonly charge: CallCharge | null
  readonly adjustments: readonly CallAdjustment[]
  readonly now: MicroCredits
}

/**
 * The cost of a call as of the last of `events`, or null if these do not contain the call. `events` must be consecutive events of one
 * ledger, starting at or before the call's `KeyUsed` event.
 */
export const costsOf = async (
  events: AsyncIterable<DecodedEvent> | Iterable<DecodedEvent>,
  wanted: CallWanted,
  sources: { readonly eventLog: Pick<EventLog, 'read'> },
): Promise<CallCost | null> => {
  let call: CostedCall | null = null
  let found = false
  let charge: CallCharge | null = null
  let cost = costOf(0n)
  const adjustments: CallAdjustment[] = []
  for await (const event of events) {
    if (event.type === 'KeyUsed' && !found) {
      call = callOf(event)
      found = 'requestId' in wanted && call.requestId === wanted.requestId
    } else if (event.type === 'CreditCharged' && charge === null) {
      const isIts = found
        ? event.metadata.causation_id === call?.eventId
        : 'chargeId' in wanted && event.data.charge_id === wanted.chargeId
      if (!isIts) continue
      found = true
      charge = {
        ...event.data,
        revision: event.recorded.revision,
        micro: parseCredits(event.data.amount),
      }
      cost = costOf(charge.micro)
    } else if (event.type === 'CreditAdjusted' && found && call !== null) {
      const adjustment = await adjustmentOf(event, { call, charge, cost }, sources)
      if (adjustment === null) continue
      adjustments.push(adjustment)
      cost =
        event.data.adjusts === null
          ? { ...cost, now: cost.now - adjustment.amount }
          : givenBackOf(cost, adjustment)
    }
  }
  return call !== null && found ? { call, charge, adjustments, now: cost.now } : null
}

/** The cost of a charged call as of the end of its ledger. `from` must not be after the call. Throws if the charge is not found. */
export const costAsOf = async (
  { eventLog }: { readonly eventLog: Pick<EventLog, 'read'> },
  organizationId: string,
  { chargeId, from }: { chargeId: string; from: number },
): Promise<CallCost & { asOf: number }> => {
  let asOf = from - 1
  async function* events(): AsyncGenerator<DecodedEvent> {
    for await (const page of ledgerPages(eventLog, organizationId, from))
      for (const recorded of page) {
        asOf = recorded.revision
        yield decodeEvent(recorded)
      }
  }
  const cost = await costsOf(events(), { chargeId }, { eventLog })
  if (cost === null)
    throw new Error(
      `the ledger of ${organizationId} contains no charge ${chargeId} at or after revision ${from}`,
    )
  return { ...cost, asOf }
}

const callOf = ({ data, metadata, recorded }: DomainEventOf<'KeyUsed'> & DecodedEvent): CostedCall => ({
  revision: recorded.revision,
  eventId: recorded.id,
  requestId: metadata.request_id ?? null,
  facts: data.facts,
  atMs: Date.parse(metadata.effective_at),
})

/** The effect of an adjustment on a call, or null if there is none. */
const adjustmentOf = async (
  { data, metadata, recorded }: DomainEventOf<'CreditAdjusted'> & DecodedEvent,
  before: Pick<CallCost, 'call' | 'charge'> & { readonly cost: CostSoFar },
  { eventLog }: { readonly eventLog: Pick<EventLog, 'read'> },
): Promise<CallAdjustment | null> => {
  const ofRun = data.rerate_run !== null && data.adjusts === null
  if (!ofRun && (before.charge === null || data.adjusts !== before.charge.charge_id)) return null
  const amount =
    data.rerate_run !== null && data.adjusts === null
      ? await partOfRun(eventLog, data.rerate_run, {
          ...before,
          organizationId: organizationOfStream(recorded.stream) ?? '',
        })
      : parseCredits(data.amount)
  if (ofRun && amount === 0n) return null
  return {
    revision: recorded.revision,
    adjustmentId: data.adjustment_id,
    kind: data.kind,
    amount,
    fills: data.fills,
    rerateRun: data.rerate_run,
    reason: data.reason,
    at: metadata.effective_at,
  }
}

/** The amount by which a re-rate reduced the cost of a call, calculated from the run. */
const partOfRun = async (
  eventLog: Pick<EventLog, 'read'>,
  run: string,
  { organizationId, call, cost }: { organizationId: string; call: CostedCall; cost: CostSoFar },
): Promise<MicroCredits> => -partOf(await finishedRun({ eventLog }, organizationId, run), call, cost)
