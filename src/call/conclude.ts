import type { FastifyReply } from 'fastify'
import type { Logger } from 'pino'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import type { CallFacts, CallOutcome } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { AuthenticationFailure } from '../guard/authenticate.ts'
import type { DirectoryKey, KeyDirectory } from '../guard/key-directory.ts'
import type { RateLimiter, RatePolicy, RateVerdict } from '../guard/rate-limit.ts'
import type { Secrets } from '../guard/secrets.ts'
import { settlementKeyOf } from '../ledger/abandoned.ts'
import { type Account, availableOf, balanceOf } from '../ledger/account.ts'
import type { Affordability, CallToRecord } from '../ledger/command.ts'
import { type Committed, type Ledger, LedgerUnavailable } from '../ledger/commit.ts'
import { affordabilityOf, outcomeOfCall, ratingOf } from '../ledger/decide.ts'
import type { PriceBooks } from '../ledger/price-books.ts'
import { type AnswerHeaders, type Credits, callHeaders, errorBody, send, statusOf } from './answer.ts'
import { commandKeyOf, fingerprintText } from './attempts.ts'
import { notEnoughCredits, type Refusal } from './errors.ts'
import type { AnyCapabilityForm, PaidCall } from './form.ts'
import type { Idempotency, IdempotencyClaim } from './idempotency.ts'
import type { RefusedCalls } from './refused-calls.ts'
import type { Reservations } from './reservations.ts'
import type { Strangers } from './strangers.ts'
import { unavailableWhenLate, waitLeftMs } from './waiting.ts'

/**
 * How a call that was let in ends: its facts and its charge in one append, then its answer. Nothing here leaves before
 * it is durable (decision 12).
 */

/** What a call needs from the house. */
export type CallRoom = {
  readonly directory: KeyDirectory
  readonly secrets: Secrets
  readonly limiter: RateLimiter
  readonly refusedCalls: RefusedCalls
  readonly strangers: Strangers
  readonly ledger: Ledger
  readonly prices: PriceBooks
  readonly idempotency: Idempotency
  readonly reservations: Reservations
  readonly requestIds: (nowMs: number) => string
  readonly clock: { now(): number }
  readonly logger: Logger
  readonly observe?: CallObserver
}

/** What operations wants to know about calls. Told on every call, so it has to be cheap. */
export type CallObserver = {
  /** An answer leaves. `code` says why a call was refused or failed; a replay counts as answered. */
  answered(
    capability: Capability,
    outcome: CallOutcome,
    code: string | undefined,
    seconds: number,
    chargedMicro: MicroCredits,
  ): void
  notAuthenticated(reason: AuthenticationFailure): void
  rateLimited(policy: RatePolicy): void
}

/** A call that was let in. */
export type Admitted = {
  readonly form: AnyCapabilityForm
  readonly reply: FastifyReply
  readonly key: DirectoryKey
  readonly verdict: RateVerdict
  readonly requestId: string
  readonly atMs: number
  readonly startedMs: number
  readonly claim?: IdempotencyClaim
  /** With a claim: which attempt this is, and up to where the ledger does not hold it. */
  readonly attempt?: { readonly number: number; readonly absentUpTo: number }
  /** With a claim: where the ledger holds the call that paid for the answer. */
  readonly paidRevision?: number | null
  /** The call was charged before: its first event id, and up to where the ledger does not hold what settles that. */
  readonly owes?: {
    readonly eventId: string
    readonly revision: number
    readonly call: PaidCall
    readonly settle: { readonly absentUpTo: number } | null
  }
}

/** What a call comes to: what it established and how it ends. */
export type Conclusion = { readonly outcome: CallOutcome; readonly code?: string; readonly facts: CallFacts }

/** The account as this process last saw it. It may have to be loaded: within the caller's patience, less what is kept of it. */
export const lastSeen = (
  { ledger }: CallRoom,
  admitted: Pick<Admitted, 'key' | 'startedMs'>,
  keptMs = 0,
): Promise<Account> =>
  unavailableWhenLate(ledger.lastSeen(admitted.key.organizationId), {
    waitMs: waitLeftMs(admitted) - keptMs,
    what: 'the ledger',
  })

/**
 * One append: what the call established and what it costs. Durable when this resolves. `only`: nothing is written, and no events
 * come back, where the account the append is decided on says otherwise.
 */
export const record = (
  room: CallRoom,
  admitted: Admitted,
  conclusion: Conclusion,
  only?: Affordability,
): Promise<Committed> => {
  const { owes } = admitted
  // Only an answer settles the charge; a refusal this time is a call of its own.
  const settles = conclusion.outcome === 'answered' && owes !== undefined && owes.settle !== null
  return room.ledger.submit(admitted.key.organizationId, {
    ...envelopeOf(admitted, conclusion),
    ...(settles ? { key: settlementKeyOf(owes.eventId), absentUpTo: owes.settle.absentUpTo } : {}),
    // A refusal delivers nothing: whoever had refused the call before may give its charge back.
    ...(owes === undefined || conclusion.outcome !== 'answered' ? {} : { owes: owes.eventId }),
    kind: 'record',
    call: {
      ...callToRecord(admitted, conclusion),
      ...(settles ? { idempotent: true } : {}),
    },
    book: room.prices.at(admitted.atMs),
    ...(only === undefined ? {} : { only }),
  })
}

const envelopeOf = (
  { key, requestId, atMs, startedMs, claim, attempt }: Admitted,
  { outcome }: Conclusion,
) => ({
  key:
    claim === undefined || attempt === undefined
      ? `${outcome === 'failed' ? 'failed/' : ''}${requestId}`
      : commandKeyOf(claim.key, attempt.number),
  atMs,
  actor: `key:${key.keyId}`,
  requestId,
  waitMaxMs: waitLeftMs({ startedMs }),
  ...(attempt === undefined ? {} : { absentUpTo: attempt.absentUpTo }),
})

const callToRecord = (
  { form, key, claim, attempt }: Admitted,
  { outcome, code, facts }: Conclusion,
): CallToRecord => ({
  keyId: key.keyId,
  capability: form.capability,
  outcome,
  ...(code === undefined ? {} : { code }),
  facts,
  idempotent: attempt !== undefined,
  ...(claim === undefined || attempt === undefined ? {} : { requestFingerprint: fingerprintText(claim) }),
})

/** Uses up no Idempotency-Key: the next request with it is the first one again. */
const unpaid: Conclusion = {
  outcome: 'refused',
  code: 'CREDIT_001',
  facts: { kind: 'refusal', code: 'CREDIT_001' },
}

/**
 * Holds what the call may come to cost, if the balance can pay it beside the calls in progress (ledger protocol rule 8).
 * If it cannot, the call is refused, recorded and answered: null. The refusal is decided by the append, not by what
 * this process last saw: credits granted elsewhere a moment ago count.
 */
export const reserve = async (
  room: CallRoom,
  admitted: Admitted,
  dearest: CallFacts,
): Promise<{ release(): void } | null> => {
  const { key, atMs } = admitted
  const { prices, reservations } = room
  for (let ratings = 0; ratings < ratingsMax; ratings++) {
    const account = await lastSeen(room, admitted)
    // Read and added to without an await between: two calls at once do not hold the same credits.
    const held = reservations.held(key.organizationId)
    if (affordabilityOf(account, dearest, { book: prices.at(atMs), atMs, held }) !== 'unpaid') {
      const { total } = ratingOf(account, dearest, prices.at(atMs), atMs)
      return { release: reservations.hold(key.organizationId, total) }
    }
    const refused = await recordUnpaid(room, admitted, dearest, held)
    if (refused === null) continue
    await refuseUnpaid(room, admitted, dearest, refused)
    return null
  }
  throw new LedgerUnavailable('what the call costs changes faster than it can be recorded')
}

/**
 * Records that the balance cannot pay a call, unless the account says otherwise by then: null. Beyond the first of a
 * minute no append decides that, so the ledger is read: credits granted elsewhere count here too.
 */
const recordUnpaid = async (
  room: CallRoom,
  admitted: Admitted,
  dearest: CallFacts,
  held: MicroCredits,
): Promise<Pick<Committed, 'balance'> | null> => {
  const { claim, attempt, ...unclaimed } = admitted
  const { form, key, atMs, startedMs } = admitted
  const book = room.prices.at(atMs)
  if (!room.refusedCalls.single(key, startedMs)) {
    const account = await unavailableWhenLate(room.ledger.account(key.organizationId), {
      waitMs: waitLeftMs(admitted),
      what: 'the ledger',
    })
    if (affordabilityOf(account, dearest, { book, atMs, held }) === 'unpaid') {
      const { capability } = form
      room.refusedCalls.refused(key, { code: 'CREDIT_001', outcome: 'refused', capability }, atMs)
      return { balance: balanceOf(account, atMs) }
    }
  }
  const { events, balance } = await room.ledger.submit(key.organizationId, {
    ...envelopeOf(unclaimed, unpaid),
    kind: 'refuse',
    call: callToRecord(unclaimed, unpaid),
    book,
    dearest,
    held,
  })
  return events.length === 0 ? null : { balance }
}

/** How often an account may change its mind about what a call costs, while it is recorded. */
const ratingsMax = 8

/** An answer as it was recorded. `unpaid`: as one that the balance could not pay. */
export type Recorded = Pick<Committed, 'events' | 'balance' | 'repeated'> & {
  readonly unpaid: boolean
  /** Where the ledger holds the call, if it was charged. */
  readonly paidRevision: number | null
}

/**
 * Records an answer and its charge. An Idempotency-Key is used up by a charge: a call that came with one and costs nothing,
 * or is refused because nobody can pay it, is recorded as a call without one.
 */
export const recordAnswer = async (
  room: CallRoom,
  admitted: Admitted,
  facts: CallFacts,
): Promise<Recorded> => {
  const { claim, attempt, ...unclaimed } = admitted
  const { atMs, startedMs } = admitted
  const answered: Conclusion = { outcome: 'answered', facts }
  const rated = (account: Account): Affordability =>
    affordabilityOf(account, facts, { book: room.prices.at(atMs), atMs })
  // Most calls: what they cost, and whether that is there, is asked once, by the append.
  const appendDecides = attempt === undefined && !room.refusedCalls.singlesSpent(admitted.key, startedMs)
  for (let ratings = 0; ratings < ratingsMax; ratings++) {
    const seen = appendDecides ? 'paid' : rated(await lastSeen(room, admitted))
    if (seen === 'unpaid') {
      const refused = await recordUnpaid(room, admitted, facts, 0n)
      if (refused !== null)
        return { events: [], unpaid: true, repeated: false, paidRevision: null, ...refused }
    } else {
      const committed = await record(
        room,
        seen === 'paid' ? admitted : unclaimed,
        answered,
        // Without an Idempotency-Key the append decides whatever it finds.
        attempt === undefined ? undefined : seen,
      )
      const { events, balance, repeated, revision } = committed
      const { unpaid, charged } = outcomeOfCall(events)
      const paidRevision = charged > 0n ? revision - events.length + 1 : null
      if (unpaid) room.refusedCalls.single(admitted.key, startedMs)
      if (events.length > 0) return { events, balance, repeated, unpaid, paidRevision }
    }
  }
  throw new LedgerUnavailable('what the call costs changes faster than it can be recorded')
}

/** Records a refusal as a free fact, the first of a minute singly, and answers it. */
export const refuse = async (room: CallRoom, admitted: Admitted, refusal: Refusal): Promise<FastifyReply> => {
  const { code } = refusal
  const status = statusOf(refusal)
  const outcome = status >= 500 ? 'failed' : 'refused'
  const balance = await recordRefusal(room, admitted, { outcome, code })
  return finish(
    room,
    admitted,
    { status, body: errorBody(refusal, admitted.requestId), refusal },
    { charged: 0n, remaining: balance },
  )
}

/** What is left after a refusal that was recorded, or counted to be recorded with others. */
export const recordRefusal = async (
  room: CallRoom,
  admitted: Admitted,
  { outcome, code }: { readonly outcome: 'refused' | 'failed'; readonly code: string },
): Promise<MicroCredits> => {
  const { key, atMs, form, startedMs } = admitted
  if (room.refusedCalls.single(key, startedMs)) {
    // It costs nothing: no Idempotency-Key is used up.
    const { claim, attempt, ...unclaimed } = admitted
    return (await record(room, unclaimed, { outcome, code, facts: { kind: 'refusal', code } })).balance
  }
  room.refusedCalls.refused(key, { code, outcome, capability: form.capability }, atMs)
  return balanceOf(await lastSeen(room, admitted), atMs)
}

/** Answers that the balance cannot pay what the call costs; it stands in the ledger already. */
export const refuseUnpaid = async (
  room: CallRoom,
  admitted: Admitted,
  facts: CallFacts,
  { balance }: Pick<Committed, 'balance'>,
): Promise<FastifyReply> => {
  const { key, atMs, requestId } = admitted
  const account = await lastSeen(room, admitted)
  const available = availableOf(account, atMs) - room.reservations.held(key.organizationId)
  const refusal = notEnoughCredits({
    required: formatCredits(ratingOf(account, facts, room.prices.at(atMs), atMs).total),
    available: formatCredits(available > 0n ? available : 0n),
  })
  return finish(
    room,
    admitted,
    { status: statusOf(refusal), body: errorBody(refusal, requestId), refusal },
    { charged: 0n, remaining: balance },
  )
}

/** A result written out, and what stands beside it in the envelope. */
export type Rendered = { readonly json: string; readonly beside: string }

export const rendered = (
  form: AnyCapabilityForm,
  { result, beside }: { readonly result: object; readonly beside?: object },
): Rendered => ({
  json: form.renderResult?.(result) ?? JSON.stringify(result),
  beside: beside === undefined ? '' : `,${JSON.stringify(beside).slice(1, -1)}`,
})

/** Answers with a result whose facts and charge are durable. */
export const deliver = (
  room: CallRoom,
  admitted: Admitted,
  { json, beside }: Rendered,
  credits: Credits,
): FastifyReply | Promise<FastifyReply> => {
  const { form, requestId, startedMs } = admitted
  if (form.body === 'flat') return finish(room, admitted, { status: 200, body: json }, credits)
  const elapsedMs = Math.round((performance.now() - startedMs) * 1000) / 1000
  const body = `{"result":${json},"processing_time_ms":${elapsedMs},"request_id":"${requestId}"${beside}}`
  return finish(room, admitted, { status: 200, body }, credits)
}

type Outgoing = { readonly status: number; readonly body: string; readonly refusal?: Refusal }

/** Sends an answer whose facts are durable, keeping it for replays where the caller asked for that. */
const finish = (
  room: CallRoom,
  admitted: Admitted,
  { status, body, refusal }: Outgoing,
  credits: Credits,
): FastifyReply | Promise<FastifyReply> => {
  observe(room, admitted, refusal, credits.charged)
  const headers = headersOf(admitted, credits)
  if (refusal?.retryAfterSeconds !== undefined) headers['retry-after'] = String(refusal.retryAfterSeconds)
  const { claim, reply, requestId, form, paidRevision } = admitted
  if (claim === undefined) return send(reply, { status, headers, body })
  // Of a person's data nothing is kept; a call nobody could pay, or that failed, may be made again at once.
  const kept = form.personal === true && status === 200 ? null : body
  const again = refusal?.code === 'CREDIT_001' || status >= 500
  return (
    again
      ? room.idempotency.release(claim)
      : room.idempotency.finish(claim, { status, body: kept, paidRevision: paidRevision ?? null })
  )
    .catch((error: unknown) =>
      room.logger.error({ err: error, requestId }, 'an answer could not be kept for replays'),
    )
    .then(() => send(reply, { status, headers, body }))
}

export const observe = (
  { observe }: CallRoom,
  { form, startedMs }: Pick<Admitted, 'form' | 'startedMs'>,
  refusal: Refusal | undefined,
  charged: MicroCredits,
): void => {
  if (observe === undefined) return
  const outcome = refusal === undefined ? 'answered' : statusOf(refusal) >= 500 ? 'failed' : 'refused'
  observe.answered(form.capability, outcome, refusal?.code, (performance.now() - startedMs) / 1000, charged)
}

export const headersOf = ({ requestId, verdict }: Admitted, credits: Credits): AnswerHeaders =>
  callHeaders(requestId, verdict, credits)
