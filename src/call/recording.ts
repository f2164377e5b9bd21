import { formatCredits, type MicroCredits } from '../billing/money.ts'
import type { CallFacts, CallOutcome } from '../events/calls.ts'
import { type CallToRecord, type Committed, type Envelope, LedgerUnavailable } from '../ledger/command.ts'
import { outcomeOfCall } from '../ledger/decide.ts'
import type { ReservationMade } from '../ledger/write/reservations.ts'
import { within } from '../tracing/spans.ts'
import { statusOf } from './answer.ts'
import type { AdmittedCall } from './call.ts'
import { figuresFor } from './caller-figures.ts'
import type { CallDependencies } from './dependencies.ts'
import { notEnoughCredits, type Refusal } from './errors.ts'
import type { IdempotencyClaim } from './idempotency.ts'
import { byRequest, type Identity } from './identity.ts'
import { commandKeyOf, fingerprintText } from './key-lookup.ts'
import { type CallResult, uncharged } from './result.ts'
import { unavailableWhenLate, waitLeftMs } from './waiting.ts'

type Conclusion = { readonly outcome: CallOutcome; readonly code?: string; readonly facts: CallFacts }

/**
 * Records the facts and the cost of a call in one append. Resolves when the append is durable. If `only` names the wrong kind of
 * call, nothing is written and no events are returned.
 */
export const record = (
  { ledger, prices, overload }: CallDependencies,
  call: AdmittedCall,
  identity: Identity,
  conclusion: Conclusion,
  only?: 'free' | 'paid',
): Promise<Committed> =>
  within(call.span, 'append', () =>
    overload.recording(
      ledger.submit(call.key.organizationId, {
        ...envelopeOf(call, identity, conclusion),
        kind: 'record',
        call: callToRecord(call, identity, conclusion),
        book: prices.at(call.atMs),
        ...(only === undefined ? {} : { only }),
      }),
    ),
  )

const envelopeOf = (
  { key, requestId, atMs, startedMs, trace }: AdmittedCall,
  identity: Identity,
  { outcome }: Conclusion,
): Envelope => {
  const { repeats } = { repeats: undefined, ...identity }
  const from = {
    atMs,
    actor: `key:${key.keyId}`,
    requestId,
    waitMaxMs: waitLeftMs({ startedMs }),
    ...(repeats === undefined ? {} : { repeats }),
    ...(trace === null ? {} : { traceId: trace.traceId }),
  }
  if (identity.kind === 'keyed') {
    const { claim, absentUpTo } = identity
    return { ...from, key: commandKeyOf(claim.key), absentUpTo }
  }
  // The call may already be recorded as answered although no answer was sent, so the failure needs its own command id.
  return { ...from, key: outcome === 'failed' ? `failed/${requestId}` : requestId }
}

const callToRecord = (
  { form, key }: AdmittedCall,
  identity: Identity,
  { outcome, code, facts }: Conclusion,
): CallToRecord => ({
  keyId: key.keyId,
  capability: form.capability,
  outcome,
  ...(code === undefined ? {} : { code }),
  facts,
  ...(identity.kind === 'keyed'
    ? { idempotent: true, requestFingerprint: fingerprintText(identity.claim) }
    : {}),
})

/** The maximum number of times that the cost of a call can change while the call is recorded or its credits are reserved. */
const ratingsMax = 8

const changesTooFast = (): LedgerUnavailable =>
  new LedgerUnavailable('the cost of the call changes faster than it can be recorded')

type Recorded =
  | { readonly kind: 'recorded'; readonly committed: Committed; readonly paidRevision: number | null }
  /** The balance cannot pay for the call, so only a refusal is recorded. */
  | { readonly kind: 'unpaid'; readonly remaining: MicroCredits }
  /** Another request with the same key recorded the call first. */
  | { readonly kind: 'written_before'; readonly claim: IdempotencyClaim }

/** Records an answer and its charge. Only a charge uses up an Idempotency-Key: a free or refused call is recorded without its key. */
export const recordAnswer = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  identity: Identity,
  facts: CallFacts,
): Promise<Recorded> => {
  const { prices, refusedCalls } = dependencies
  const { key, atMs, startedMs } = call
  // For most calls, the append determines the cost and whether the balance can pay it.
  const appendDecides = identity.kind !== 'keyed' && !refusedCalls.singlesSpent(key, startedMs)
  for (let ratings = 0; ratings < ratingsMax; ratings++) {
    const seen = appendDecides
      ? 'paid'
      : (await figuresFor(dependencies, call, { cost: { facts, book: prices.at(atMs) } })).cost?.affordability
    if (seen === 'unpaid') {
      const remaining = await recordUnpaid(dependencies, call, facts, 0n)
      if (remaining !== null) return { kind: 'unpaid', remaining }
      continue
    }
    const committed = await record(
      dependencies,
      call,
      seen === 'free' ? byRequest : identity,
      { outcome: 'answered', facts },
      // Without an Idempotency-Key, the append always determines the outcome.
      identity.kind === 'keyed' ? seen : undefined,
    )
    if (committed.events.length === 0) continue
    if (identity.kind === 'keyed' && committed.repeated && committed.requestId !== call.requestId)
      return { kind: 'written_before', claim: identity.claim }
    const { unpaid, charged } = outcomeOfCall(committed.events)
    if (unpaid) {
      refusedCalls.single(key, startedMs)
      return { kind: 'unpaid', remaining: committed.balance }
    }
    const { revision, events } = committed
    return { kind: 'recorded', committed, paidRevision: charged > 0n ? revision - events.length + 1 : null }
  }
  throw changesTooFast()
}

/** The Idempotency-Key is not used up; the next request with this key counts as the first. */
const unpaid: Conclusion = {
  outcome: 'refused',
  code: 'CREDIT_001',
  facts: { kind: 'refusal', code: 'CREDIT_001' },
}

/**
 * Records that the balance cannot pay a call, and returns the balance; null if the balance can pay now. After the first refusals of a minute,
 * refusals are only counted, without an append. The ledger is then read, because another process may have granted credits.
 */
const recordUnpaid = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  dearest: CallFacts,
  held: MicroCredits,
): Promise<MicroCredits | null> => {
  const { ledger, prices, refusedCalls } = dependencies
  const { form, key, atMs, startedMs } = call
  const book = prices.at(atMs)
  if (!refusedCalls.single(key, startedMs)) {
    const cost = { facts: dearest, book, held }
    const now = await figuresFor(dependencies, call, { fresh: true, cost })
    if (now.cost?.affordability === 'unpaid') {
      const { capability } = form
      refusedCalls.refused(key, { code: 'CREDIT_001', outcome: 'refused', capability }, atMs)
      return now.balance
    }
  }
  const { events, balance } = await ledger.submit(key.organizationId, {
    ...envelopeOf(call, byRequest, unpaid),
    kind: 'refuse',
    call: callToRecord(call, byRequest, unpaid),
    book,
    dearest,
    held,
  })
  return events.length === 0 ? null : balance
}

/** Records a refusal as a free fact. The first refusals of a minute are recorded individually, all later ones as counts. */
export const refuse = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  refusal: Refusal,
): Promise<CallResult> => {
  const outcome = statusOf(refusal) >= 500 ? 'failed' : 'refused'
  const remaining = await recordRefusal(dependencies, call, { outcome, code: refusal.code })
  return uncharged(outcome, refusal, remaining)
}

/** Records a refusal, individually or as a count, and returns the balance. Does not use up the Idempotency-Key. */
export const recordRefusal = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  { outcome, code }: { readonly outcome: 'refused' | 'failed'; readonly code: string },
): Promise<MicroCredits> => {
  const { refusedCalls } = dependencies
  const { key, atMs, form, startedMs } = call
  if (refusedCalls.single(key, startedMs)) {
    const conclusion: Conclusion = { outcome, code, facts: { kind: 'refusal', code } }
    return (await record(dependencies, call, byRequest, conclusion)).balance
  }
  refusedCalls.refused(key, { code, outcome, capability: form.capability }, atMs)
  return (await figuresFor(dependencies, call)).balance
}

/** Returns the answer for a call that the balance cannot pay. The refusal is already recorded. */
export const refusedUnpaid = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  facts: CallFacts,
  remaining: MicroCredits,
): Promise<CallResult> => {
  const book = dependencies.prices.at(call.atMs)
  const { available, cost } = await figuresFor(dependencies, call, { cost: { facts, book } })
  const refusal = notEnoughCredits({
    required: formatCredits(cost?.required ?? 0n),
    available: formatCredits(available > 0n ? available : 0n),
  })
  return uncharged('refused', refusal, remaining)
}

/** Credits reserved for a call until it is recorded. A second `hold` replaces the earlier amount. */
export type Reservation = {
  /**
   * Reserves the call's highest cost, if the balance can pay it in addition to the calls in progress (ledger protocol rule 8).
   * Otherwise refuses and records the call, and returns its result. An append confirms the refusal, so that credits just granted by
   * another process count.
   */
  hold(dearest: CallFacts): Promise<CallResult | null>
  release(): void
}

/** Waits for a reservation, and releases it if it comes too late for the caller. */
const reserved = async (reserving: Promise<ReservationMade>, waitMs: number): Promise<ReservationMade> => {
  try {
    return await unavailableWhenLate(reserving, { waitMs, what: 'the ledger' })
  } catch (error) {
    reserving.then(
      (made) => (made.kind === 'held' ? made.release() : undefined),
      () => undefined,
    )
    throw error
  }
}

export const createReservation = (dependencies: CallDependencies, call: AdmittedCall): Reservation => {
  const { prices, ledger } = dependencies
  const { key, atMs } = call
  let release: () => void = () => undefined
  return {
    release: () => release(),
    hold: async (dearest) => {
      release()
      const book = prices.at(atMs)
      for (let ratings = 0; ratings < ratingsMax; ratings++) {
        const reserving = ledger.reserve(key.organizationId, { facts: dearest, book, atMs })
        const made = await reserved(reserving, waitLeftMs(call))
        if (made.kind === 'held') {
          release = made.release
          return null
        }
        const remaining = await recordUnpaid(dependencies, call, dearest, made.held)
        if (remaining !== null) return refusedUnpaid(dependencies, call, dearest, remaining)
      }
      throw changesTooFast()
    },
  }
}
