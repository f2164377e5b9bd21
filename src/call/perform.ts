import assert from 'node:assert/strict'
import { isUtf8 } from 'node:buffer'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { MicroCredits } from '../billing/money.ts'
import { isPriced } from '../billing/tariff.ts'
import { Unavailable } from '../event-log/port.ts'
import { type AuthenticationFailure, authenticate } from '../guard/authenticate.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { type DirectoryKey, mayCallFrom } from '../guard/key-directory.ts'
import { parseApiKey } from '../keys/api-key.ts'
import { balanceOf } from '../ledger/account.ts'
import { LedgerUnavailable } from '../ledger/commit.ts'
import { chargeLinesOf, outcomeOfCall } from '../ledger/decide.ts'
import { type AnswerHeaders, callHeaders, sendRefusal } from './answer.ts'
import {
  type Admitted,
  type CallRoom,
  deliver,
  observe,
  recordAnswer,
  recordRefusal,
  refuse,
  refuseUnpaid,
  rendered,
  reserve,
} from './conclude.ts'
import {
  addressNotAllowed,
  internalError,
  lacksPermission,
  notAuthenticated,
  type Refusal,
  rateLimitExceeded,
  temporarilyUnavailable,
  unreadableBody,
  wrongParameter,
} from './errors.ts'
import { type AnyCapabilityForm, type CallDecision, CallEnded, type Caller, type JsonObject } from './form.ts'
import { fingerprintOf, parseIdempotencyKey } from './idempotency.ts'
import { answerIdempotent, type WrittenBefore } from './idempotent-call.ts'
import { hasBody, queryOf } from './query.ts'
import { refusalWaitMs, unavailableWhenLate } from './waiting.ts'

/**
 * The sequence of every call, written once:
 *
 *   authenticate → permit → rate limit → parse → (balance) → gather → decide → rate → ONE append → answer
 *
 * An answer leaves only after its facts and its charge are durable (decision 12). It does not know any capability.
 */

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
    const read = form.method === 'GET' ? { body: {} } : readParameters(form, request)
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

/** What is left, by the ledger or as it was told last: an answer that is no charge does not wait for a ledger that is away. */
const balanceTold = (
  { ledger }: CallRoom,
  { key: { organizationId }, atMs }: Admitted,
): Promise<MicroCredits | undefined> =>
  unavailableWhenLate(ledger.lastSeen(organizationId), { waitMs: refusalWaitMs, what: 'the ledger' }).then(
    (account) => balanceOf(account, atMs),
    () => ledger.knownBalance(organizationId),
  )

/** A call that broke is recorded as what it is, where the ledger takes it; the answer leaves either way. */
const headersOfFailure = async (
  room: CallRoom,
  admitted: Admitted,
  refusal: Refusal,
): Promise<AnswerHeaders> => {
  const { verdict, requestId, key, atMs, form, startedMs, reply } = admitted
  const bare: Admitted = { verdict, requestId, key, atMs, form, startedMs, reply }
  const { code } = refusal
  const remaining =
    code === 'SYS_001'
      ? await recordRefusal(room, bare, { outcome: 'failed', code }).catch((error: unknown) => {
          // Where the log is away there is nothing to record, and a line for every call would bury what led to it.
          room.logger.warn({ err: error, requestId }, 'a failed call could not be recorded')
          return room.ledger.knownBalance(key.organizationId)
        })
      : await balanceTold(room, admitted)
  return callHeaders(requestId, verdict, remaining === undefined ? undefined : { charged: 0n, remaining })
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
  const found = authenticate(request.headers['x-api-key'], { directory, secrets, nowMs: atMs })
  const key = found instanceof Promise ? await found : found
  if (typeof key === 'string') {
    const about = { requestId, address: callerAddress(request), keyId: keyIdOf(key, request) }
    room.strangers.turnedAway(key, about)
    room.observe?.notAuthenticated(key)
    sendRefusal(reply, notAuthenticated(), callHeaders(requestId, undefined, undefined), requestId)
    return null
  }
  const forbidden = notPermitted(form, key, request)
  const verdict = await (forbidden === null
    ? room.limiter.take(key, form.perSecond?.(key.limits))
    : room.limiter.takeRefused(key))
  const admitted: Admitted = { form, reply, key, verdict, requestId, atMs, startedMs }
  if (verdict.exceeded !== null) {
    room.refusedCalls.rateLimited(key, verdict.exceeded.policy, atMs)
    // Whether the ledger can be read or not: too many calls are too many.
    const remaining = await balanceTold(room, admitted)
    const refusal = rateLimitExceeded(verdict.exceeded)
    room.observe?.rateLimited(verdict.exceeded.policy)
    observe(room, admitted, refusal, 0n)
    const credits = remaining === undefined ? undefined : { charged: 0n, remaining }
    sendRefusal(reply, refusal, callHeaders(requestId, verdict, credits), requestId)
    return null
  }
  if (forbidden === null) {
    // Before anything is done that could not be recorded afterwards.
    if (isPriced(room.prices.at(atMs), form.capability)) return admitted
    room.logger.error(
      { capability: form.capability },
      'the price book in force does not price this capability',
    )
    await refuse(room, admitted, temporarilyUnavailable())
    return null
  }
  await refuse(room, admitted, forbidden)
  return null
}

/** The public half of a key that is or was one; of anything else nothing is repeated. */
const keyIdOf = (reason: AuthenticationFailure, { headers }: FastifyRequest): string | undefined =>
  reason === 'ended' || reason === 'wrong_secret'
    ? parseApiKey(String(headers['x-api-key']))?.keyId
    : undefined

const notPermitted = (
  form: AnyCapabilityForm,
  key: DirectoryKey,
  request: FastifyRequest,
): Refusal | null => {
  if (form.permission !== null && !key.permissions.includes(form.permission))
    return lacksPermission(form.permission)
  if (key.allowed === null) return null
  const address = callerAddress(request)
  return mayCallFrom(key, address) ? null : addressNotAllowed(address)
}

/**
 * The body, and for a DELETE the query too: clients and proxies exist that send no body with it. What stands in both counts
 * as the body says.
 */
const readParameters = (form: AnyCapabilityForm, request: FastifyRequest): ReturnType<typeof readBody> => {
  if (form.method !== 'DELETE') return readBody(request)
  if (!hasBody(request)) return { body: queryOf(request) }
  const read = readBody(request)
  return 'refusal' in read ? read : { body: { ...queryOf(request), ...read.body } }
}

const noBytes = Buffer.alloc(0)

/** Why a body cannot be JSON in UTF-8 (RFC 8259 §8.1), by its headers. */
const notJson = (headers: FastifyRequest['headers']): Refusal | null => {
  const [type = '', ...parameters] = (headers['content-type'] ?? '').split(';')
  if (type.trim().toLowerCase() !== 'application/json')
    return unreadableBody('The Content-Type must be application/json.', 415)
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=', 2)
    if (name.trim().toLowerCase() === 'charset' && !/^"?utf-?8"?$/i.test(value.trim()))
      return unreadableBody('The charset must be UTF-8.', 415)
  }
  const coding = headers['content-encoding'] ?? ''
  return /^(identity)?$/i.test(coding) ? null : unreadableBody('The body must not be compressed.', 415)
}

/** The JSON object of a request, or why there is none (REQ_001). Told apart by where it stands, never by its members. */
const readBody = (request: FastifyRequest): { readonly body: JsonObject } | { readonly refusal: Refusal } => {
  const refusal = notJson(request.headers)
  if (refusal !== null) return { refusal }
  const bytes = Buffer.isBuffer(request.body) ? request.body : noBytes
  // Decoding would put U+FFFD in the place of what is wrong, and other bytes would be the same text.
  if (!isUtf8(bytes)) return { refusal: unreadableBody('The body is not valid UTF-8.') }
  try {
    const body: unknown = JSON.parse(bytes.toString())
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
  if (header === undefined || admitted.form.method !== 'POST') {
    const answered = await answerOnce(room, admitted, body)
    assert(answered !== 'written before', 'a request id came twice')
    return answered
  }
  const idempotencyKey = typeof header === 'string' ? parseIdempotencyKey(header) : null
  if (idempotencyKey === null)
    return refuse(
      room,
      admitted,
      wrongParameter('Idempotency-Key', 'one key of 1 to 255 visible ASCII characters'),
    )
  const { organizationId } = admitted.key
  return answerIdempotent(room, admitted, body, answerOnce, {
    organizationId,
    key: idempotencyKey,
    fingerprint: fingerprintOf(
      room.secrets,
      { organizationId, key: idempotencyKey },
      { route: `${admitted.form.method} ${admitted.form.path}`, body: String(request.body) },
    ),
  })
}

/** What `gather` knows of the call. What it reserved is held until `release`. */
const callerOf = (room: CallRoom, admitted: Admitted): Caller & { release(): void } => {
  const { key, atMs, requestId } = admitted
  let held: (() => void) | undefined
  return {
    key,
    atMs,
    requestId,
    repeated: null,
    reserve: async (dearest) => {
      held?.()
      const reserved = await reserve(room, admitted, dearest)
      if (reserved === null) throw new CallEnded()
      held = reserved.release
    },
    release: () => held?.(),
  }
}

const answerOnce = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
): Promise<FastifyReply | WrittenBefore> => {
  const { form } = admitted
  const parsed = form.parse(body)
  if ('refusal' in parsed) return refuse(room, admitted, parsed.refusal)
  const caller = callerOf(room, admitted)
  let decision: CallDecision<object>
  try {
    const findings = form.gather(parsed.input, caller)
    decision = form.decide(findings instanceof Promise ? await findings : findings, parsed.input)
  } catch (error) {
    if (error instanceof CallEnded) return admitted.reply
    throw error
  } finally {
    // From here on the append decides.
    caller.release()
  }
  if ('refusal' in decision) return refuse(room, admitted, decision.refusal)
  // Before anything is charged: a result that cannot be written out must not cost anything.
  const written = rendered(form, decision)
  const committed = await recordAnswer(room, admitted, decision.facts)
  if (committed.repeated && admitted.attempt !== undefined) return 'written before'
  const { charged } = outcomeOfCall(committed.events)
  if (committed.unpaid) return refuseUnpaid(room, admitted, decision.facts, committed)
  const billed = form.billed?.(decision.result, chargeLinesOf(committed.events))
  const answer = billed === undefined ? written : rendered(form, { ...decision, result: billed })
  const { paidRevision, balance } = committed
  return deliver(room, { ...admitted, paidRevision }, answer, { charged, remaining: balance })
}
