import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { formatCredits, type MicroCredits } from '../billing/money.ts'
import { Unavailable } from '../event-log/port.ts'
import type { CallFacts, CallOutcome } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import { type AuthenticationFailure, authenticate } from '../guard/authenticate.ts'
import { type DirectoryKey, type KeyDirectory, mayCallFrom } from '../guard/key-directory.ts'
import type { RateLimiter, RatePolicy, RateVerdict } from '../guard/rate-limit.ts'
import type { Secrets } from '../guard/secrets.ts'
import { availableOf, balanceOf } from '../ledger/account.ts'
import { type Committed, type Ledger, LedgerUnavailable } from '../ledger/commit.ts'
import { outcomeOfCall, ratingOf, recordCall } from '../ledger/decide.ts'
import type { PriceBooks } from '../ledger/price-books.ts'
import {
  type AnswerHeaders,
  type Credits,
  callHeaders,
  errorBody,
  send,
  sendRefusal,
  statusOf,
} from './answer.ts'
import {
  addressNotAllowed,
  idempotencyInFlight,
  idempotencyMismatch,
  internalError,
  lacksPermission,
  notAuthenticated,
  notEnoughCredits,
  type Refusal,
  rateLimitExceeded,
  temporarilyUnavailable,
  unreadableBody,
  wrongParameter,
} from './errors.ts'
import type { AnyCapabilityForm } from './form.ts'
import {
  commandKeyOf,
  fingerprintOf,
  type Idempotency,
  type IdempotencyClaim,
  parseIdempotencyKey,
} from './idempotency.ts'
import type { RateLimitRecord } from './rate-limit-record.ts'

/**
 * The sequence of every call, written once:
 *
 *   authenticate → permit → rate limit → parse → gather → decide → rate → ONE append → answer
 *
 * An answer leaves only after its facts and its charge are durable (decision 12). It does not know any capability.
 */

/** What a call needs from the house. */
export type CallRoom = {
  readonly directory: KeyDirectory
  readonly secrets: Secrets
  readonly limiter: RateLimiter
  readonly rateLimitRecord: RateLimitRecord
  readonly ledger: Ledger
  readonly prices: PriceBooks
  readonly idempotency: Idempotency
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
type Admitted = {
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
  /** The call was charged before; its first event id. */
  readonly owes?: string
}

/** Performs one call from request to answer. Never throws: whatever breaks becomes SYS_001 or SYS_002. */
export const perform = async (
  room: CallRoom,
  form: AnyCapabilityForm,
  request: FastifyRequest,
  reply: FastifyReply,
) => {
  const startedMs = performance.now()
  const atMs = room.clock.now()
  const requestId = room.requestIds(atMs)
  let admitted: Admitted | null = null
  try {
    admitted = await admit(room, form, request, reply, { startedMs, atMs, requestId })
    if (admitted === null) return reply
    const read = form.method === 'GET' ? { body: {} } : readBody(request)
    return 'refusal' in read
      ? await refuse(room, admitted, read.refusal)
      : await answer(room, admitted, read.body, request)
  } catch (error) {
    const refusal =
      error instanceof LedgerUnavailable || error instanceof Unavailable
        ? temporarilyUnavailable()
        : internalError()
    if (refusal.code === 'SYS_001')
      room.logger.error({ err: error, requestId, route: form.path }, 'a call failed')
    observe(room, { form, startedMs }, refusal, 0n)
    const headers =
      admitted === null
        ? callHeaders(requestId, undefined, undefined)
        : await headersOfFailure(room, admitted, refusal)
    return sendRefusal(reply, refusal, headers, requestId)
  }
}

/** A call that broke is recorded as what it is, where the ledger takes it; the answer leaves either way. */
const headersOfFailure = async (
  room: CallRoom,
  admitted: Admitted,
  refusal: Refusal,
): Promise<AnswerHeaders> => {
  const { verdict, requestId, key, atMs, form, startedMs, reply } = admitted
  const bare: Admitted = { verdict, requestId, key, atMs, form, startedMs, reply }
  const { code } = refusal
  try {
    const remaining =
      code === 'SYS_001'
        ? (await record(room, bare, { outcome: 'failed', code, facts: { kind: 'refusal', code } })).balance
        : balanceOf(await room.ledger.lastSeen(key.organizationId), atMs)
    return headersOf(admitted, { charged: 0n, remaining })
  } catch (error) {
    room.logger.warn({ err: error, requestId }, 'a failed call could not be recorded')
    return callHeaders(requestId, verdict, undefined)
  }
}

/** Refuses a request that never became a call: its body was too large or broken off. Recorded like any refusal. */
export const performRefused = async (
  room: CallRoom,
  form: AnyCapabilityForm,
  refusal: Refusal,
  request: FastifyRequest,
  reply: FastifyReply,
) => perform(room, { ...form, method: 'GET', parse: () => ({ refusal }) }, request, reply)

/** Authenticates, permits and limits. Null: the call was refused and answered. */
const admit = async (
  room: CallRoom,
  form: AnyCapabilityForm,
  request: FastifyRequest,
  reply: FastifyReply,
  { startedMs, atMs, requestId }: { startedMs: number; atMs: number; requestId: string },
): Promise<Admitted | null> => {
  const { directory, secrets } = room
  const key = authenticate(request.headers['x-api-key'], { directory, secrets, nowMs: atMs })
  if (typeof key === 'string') {
    room.logger.debug({ reason: key, requestId }, 'not authenticated')
    room.observe?.notAuthenticated(key)
    sendRefusal(reply, notAuthenticated(), callHeaders(requestId, undefined, undefined), requestId)
    return null
  }
  const forbidden = notPermitted(form, key, request)
  const verdict = await (forbidden === null ? room.limiter.take(key) : room.limiter.takeRefused(key))
  const admitted: Admitted = { form, reply, key, verdict, requestId, atMs, startedMs }
  if (verdict.exceeded !== null) {
    room.rateLimitRecord.count(key, verdict.exceeded.policy, atMs)
    const remaining = balanceOf(await room.ledger.lastSeen(key.organizationId), atMs)
    const refusal = rateLimitExceeded(verdict.exceeded)
    room.observe?.rateLimited(verdict.exceeded.policy)
    observe(room, admitted, refusal, 0n)
    sendRefusal(reply, refusal, headersOf(admitted, { charged: 0n, remaining }), requestId)
    return null
  }
  if (forbidden === null) return admitted
  await refuse(room, admitted, forbidden)
  return null
}

const notPermitted = (
  form: AnyCapabilityForm,
  key: DirectoryKey,
  request: FastifyRequest,
): Refusal | null => {
  if (form.permission !== null && !key.permissions.includes(form.permission))
    return lacksPermission(form.permission)
  return key.allowed === null || mayCallFrom(key, request.ip) ? null : addressNotAllowed(request.ip)
}

type JsonObject = Readonly<Record<string, unknown>>

/** The JSON object of a request, or why there is none (REQ_001). Told apart by where it stands, never by its members. */
const readBody = (request: FastifyRequest): { readonly body: JsonObject } | { readonly refusal: Refusal } => {
  const type = request.headers['content-type']
  if (type === undefined || !/^application\/json\s*(;|$)/i.test(type))
    return { refusal: unreadableBody('The Content-Type must be application/json.', 415) }
  try {
    const body: unknown = JSON.parse(typeof request.body === 'string' ? request.body : '')
    if (typeof body === 'object' && body !== null && !Array.isArray(body)) return { body: body as JsonObject }
    return { refusal: unreadableBody('The body must be a JSON object.') }
  } catch {
    return { refusal: unreadableBody('The body is not valid JSON.') }
  }
}

const answer = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  request: FastifyRequest,
): Promise<FastifyReply> => {
  const header = request.headers['idempotency-key']
  if (header === undefined || admitted.form.method === 'GET') return answerOnce(room, admitted, body)
  const idempotencyKey = typeof header === 'string' ? parseIdempotencyKey(header) : null
  if (idempotencyKey === null)
    return refuse(
      room,
      admitted,
      wrongParameter('Idempotency-Key', 'one key of 1 to 255 visible ASCII characters'),
    )
  return answerIdempotent(room, admitted, body, {
    organizationId: admitted.key.organizationId,
    key: idempotencyKey,
    fingerprint: fingerprintOf(`${admitted.form.method} ${admitted.form.path}`, String(request.body)),
  })
}

const answerOnce = async (room: CallRoom, admitted: Admitted, body: JsonObject): Promise<FastifyReply> => {
  const { form, key, atMs, requestId } = admitted
  const parsed = form.parse(body)
  if ('refusal' in parsed) return refuse(room, admitted, parsed.refusal)
  const findings = form.gather(parsed.input, { key, atMs, requestId })
  const decision = form.decide(findings instanceof Promise ? await findings : findings, parsed.input)
  if ('refusal' in decision) return refuse(room, admitted, decision.refusal)
  // Before anything is charged: a result that cannot be written out must not cost anything.
  const json = rendered(form, decision.result)
  const committed = await record(room, admitted, { outcome: 'answered', facts: decision.facts })
  const { charged, unpaid } = outcomeOfCall(committed.events)
  if (unpaid) return refuseUnpaid(room, admitted, decision.facts, committed)
  return deliver(room, admitted, json, { charged, remaining: committed.balance })
}

/** One append: what the call established and what it costs. Durable when this resolves. */
const record = (
  { ledger, prices }: CallRoom,
  { form, key, requestId, atMs, claim, attempt, owes }: Admitted,
  { outcome, code, facts }: { outcome: CallOutcome; code?: string; facts: CallFacts },
): Promise<Committed> =>
  ledger.submit(key.organizationId, {
    key:
      claim === undefined || attempt === undefined
        ? `${outcome === 'failed' ? 'failed/' : ''}${requestId}`
        : commandKeyOf(claim.key, attempt.number),
    atMs,
    actor: `key:${key.keyId}`,
    requestId,
    ...(attempt === undefined ? {} : { absentUpTo: attempt.absentUpTo }),
    ...(owes === undefined ? {} : { owes }),
    decide: (account, idOf) =>
      recordCall(
        account,
        {
          keyId: key.keyId,
          capability: form.capability,
          outcome,
          ...(code === undefined ? {} : { code }),
          facts,
          idempotent: attempt !== undefined,
        },
        { book: prices.at(atMs), chargeId: () => idOf(1), atMs },
      ),
  })

/** Records a refusal as a free fact and answers it. */
const refuse = async (room: CallRoom, admitted: Admitted, refusal: Refusal): Promise<FastifyReply> => {
  const { code } = refusal
  const outcome = statusOf(refusal) >= 500 ? 'failed' : 'refused'
  const { balance } = await record(room, admitted, { outcome, code, facts: { kind: 'refusal', code } })
  return finish(
    room,
    admitted,
    { status: statusOf(refusal), body: errorBody(refusal, admitted.requestId), refusal },
    { charged: 0n, remaining: balance },
  )
}

const refuseUnpaid = async (
  room: CallRoom,
  admitted: Admitted,
  facts: CallFacts,
  { balance }: Committed,
): Promise<FastifyReply> => {
  const { key, atMs, requestId } = admitted
  const account = await room.ledger.lastSeen(key.organizationId)
  const available = availableOf(account, atMs)
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

const rendered = (form: AnyCapabilityForm, result: object): string =>
  form.renderResult?.(result) ?? JSON.stringify(result)

const deliver = (
  room: CallRoom,
  admitted: Admitted,
  json: string,
  credits: Credits,
): FastifyReply | Promise<FastifyReply> => {
  const { form, requestId, startedMs } = admitted
  if (form.body === 'flat') return finish(room, admitted, { status: 200, body: json }, credits)
  const elapsedMs = Math.round((performance.now() - startedMs) * 1000) / 1000
  const body = `{"result":${json},"processing_time_ms":${elapsedMs},"request_id":"${requestId}"}`
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
  if (admitted.claim === undefined) return send(admitted.reply, { status, headers, body })
  return room.idempotency
    .finish(admitted.claim, { status, body, headers: {} })
    .catch((error: unknown) =>
      room.logger.error(
        { err: error, requestId: admitted.requestId },
        'an answer could not be kept for replays',
      ),
    )
    .then(() => send(admitted.reply, { status, headers, body }))
}

const observe = (
  { observe }: CallRoom,
  { form, startedMs }: Pick<Admitted, 'form' | 'startedMs'>,
  refusal: Refusal | undefined,
  charged: MicroCredits,
): void => {
  if (observe === undefined) return
  const outcome = refusal === undefined ? 'answered' : statusOf(refusal) >= 500 ? 'failed' : 'refused'
  observe.answered(form.capability, outcome, refusal?.code, (performance.now() - startedMs) / 1000, charged)
}

const headersOf = ({ requestId, verdict }: Admitted, credits: Credits): AnswerHeaders =>
  callHeaders(requestId, verdict, credits)

/** Answers a call with an Idempotency-Key: the first answer again, or the first time under a claim. */
const answerIdempotent = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  claim: IdempotencyClaim,
): Promise<FastifyReply> => {
  const claimed = await room.idempotency.claim(claim)
  switch (claimed.kind) {
    case 'in_flight':
      return refuse(room, admitted, idempotencyInFlight())
    case 'mismatch':
      return refuse(room, admitted, idempotencyMismatch())
    case 'replay': {
      // The replay is a call of its own: free, and recorded as what it is.
      const { balance } = await record(room, admitted, { outcome: 'answered', facts: { kind: 'replay' } })
      const headers = {
        ...headersOf(admitted, { charged: 0n, remaining: balance }),
        'idempotent-replayed': 'true',
      }
      observe(room, admitted, undefined, 0n)
      return send(admitted.reply, { status: claimed.answer.status, headers, body: claimed.answer.body })
    }
    case 'charged':
      return answerCharged(room, { ...admitted, owes: claimed.eventId }, body, claim)
    case 'first':
      try {
        return await answerOnce(
          room,
          { ...admitted, claim, attempt: { number: claimed.attempt, absentUpTo: claimed.absentUpTo } },
          body,
        )
      } catch (error) {
        // Nothing was written, or nobody knows: the ledger is asked again when the key comes back.
        await room.idempotency.release(claim).catch(() => undefined)
        throw error
      }
  }
}

/** The charge stands, the answer is gone: the call is made again, as a free replay. */
const answerCharged = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  claim: IdempotencyClaim,
): Promise<FastifyReply> => {
  const { form, key, atMs, requestId } = admitted
  const parsed = form.parse(body)
  const decision =
    'refusal' in parsed
      ? parsed
      : form.decide(await form.gather(parsed.input, { key, atMs, requestId }), parsed.input)
  if ('refusal' in decision) return refuse(room, admitted, decision.refusal)
  const json = rendered(form, decision.result)
  const { balance } = await record(room, admitted, { outcome: 'answered', facts: { kind: 'replay' } })
  admitted.reply.header('idempotent-replayed', 'true')
  return deliver(room, { ...admitted, claim }, json, { charged: 0n, remaining: balance })
}
