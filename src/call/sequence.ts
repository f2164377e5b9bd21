import type { FastifyReply, FastifyRequest } from 'fastify'
import { Unavailable } from '../event-log/port.ts'
import type { RateVerdict } from '../guard/limits/rate-limit.ts'
import { LedgerOutcomeUnknown, LedgerUnavailable } from '../ledger/command.ts'
import { chargeLinesOf, outcomeOfCall } from '../ledger/decide.ts'
import { startRequestSpan, traceContextOf, within } from '../tracing/spans.ts'
import { admit } from './admission.ts'
import { bodyOf, type Rendered, renderResult, send } from './answer.ts'
import type { AdmittedCall, Call } from './call.ts'
import { balanceOrLastKnown } from './caller-figures.ts'
import type { CallDependencies } from './dependencies.ts'
import { internalError, outcomeUnknown, type Refusal, temporarilyUnavailable, tooBusy } from './errors.ts'
import type { AnyCapabilityForm, Caller, Decided, JsonObject, Unaffordable } from './form.ts'
import { type IdempotencyClaim, isRepeatable } from './idempotency.ts'
import { identify, identifyAgain, keep, letGo } from './identify.ts'
import type { Identity } from './identity.ts'
import {
  createReservation,
  type Reservation,
  record,
  recordAnswer,
  recordRefusal,
  refuse,
  refusedUnpaid,
} from './recording.ts'
import { rehearsalOf } from './rehearsal.ts'
import { readParameters } from './request-body.ts'
import { type CallResult, uncharged } from './result.ts'
import { retryAfterSeconds } from './waiting.ts'

/**
 * The sequence of every call. It is the same for every capability:
 *
 *   authenticate, permit, limit   admit          admission.ts
 *   check that the log answers    gates          concurrency/gate.ts
 *   limit the calls in progress   enter          overload.ts
 *   read the parameters           readParameters request-body.ts
 *   identify the call             identify       identify.ts (Idempotency-Key)
 *   parse, gather, decide         make           the capability's form; `gather` may reserve credits; rehearsal.ts replaces `gather` for test keys
 *   record and charge             charge         recording.ts: ONE append, and nothing leaves before it is durable (decision 12)
 *   answer                        send           answer.ts
 *
 * Each step returns a value. A step that ends the call returns the call's result.
 */

/** `unreadable` is the refusal of a body that could not be read. */
type Asked = {
  readonly form: AnyCapabilityForm
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly unreadable?: Refusal
}

/** Answers one call. Never throws: every failure becomes SYS_001, SYS_002 or SYS_003. */
export const answerCall = async (
  dependencies: CallDependencies,
  { form, request, reply, unreadable }: Asked,
): Promise<FastifyReply> => {
  const { clock, requestIds } = dependencies
  const atMs = clock.now()
  const trace = traceContextOf(request.headers.traceparent)
  const span = startRequestSpan(form.capability, trace)
  const startedMs = performance.now()
  const call: Call = { form, request, requestId: requestIds(atMs), atMs, startedMs, trace, span }
  let admitted: AdmittedCall | null = null
  let organizationId: string | null = null
  const end = (verdict: RateVerdict | undefined, result: CallResult): FastifyReply =>
    send(reply, call, { verdict, result, organizationId, dependencies })
  let leave: (() => void) | null = null
  try {
    const admission = await admit(dependencies, call)
    const { verdict } = admission
    if (admission.kind === 'turned_away') {
      organizationId = admission.organizationId
      return end(verdict, admission.result)
    }
    admitted = admission.call
    organizationId = admitted.key.organizationId
    // `gather` must not run if its findings cannot be recorded.
    if (typeof dependencies.gates?.eventLog.refuses() === 'number')
      return end(verdict, refuseAtOnce(dependencies, admitted, awayNow(dependencies)))
    leave = dependencies.overload.enter(admitted.key.organizationId)
    const result =
      leave === null
        ? refuseAtOnce(dependencies, admitted, tooBusy())
        : await perform(dependencies, admitted, unreadable)
    return end(verdict, result)
  } catch (error) {
    const result = await failed(dependencies, call, admitted, error)
    return end(admitted?.verdict, result)
  } finally {
    leave?.()
  }
}

/** Refuses a call because of overload or an unavailable event log. Counts the refusal without reading or waiting. */
const refuseAtOnce = (
  { refusedCalls, ledger }: CallDependencies,
  { key, form, atMs }: AdmittedCall,
  refusal: Refusal,
): CallResult => {
  refusedCalls.refused(key, { code: refusal.code, outcome: 'failed', capability: form.capability }, atMs)
  return uncharged('failed', refusal, ledger.knownBalance(key.organizationId))
}

const awayNow = ({ gates }: CallDependencies): Refusal => temporarilyUnavailable(retryAfterSeconds(gates))

const perform = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  unreadable: Refusal | undefined,
): Promise<CallResult> => {
  const read =
    unreadable === undefined ? readParameters(call.form.method, call.request) : { refusal: unreadable }
  if ('refusal' in read) return refuse(dependencies, call, read.refusal)
  let identity = await identify(dependencies, call)
  if (identity.kind === 'ended') return identity.result
  try {
    let made = await make(dependencies, call, identity, read.body)
    if (made.kind === 'written_before') {
      const now = await identifyAgain(dependencies, call, made.claim)
      if (now.kind === 'ended') return now.result
      identity = now
      made = await make(dependencies, call, identity, read.body)
      if (made.kind === 'written_before') throw new Error('a charged call was written again')
    }
    await keep(dependencies, call, identity, made)
    return made
  } catch (error) {
    await letGo(dependencies, identity)
    throw error
  }
}

type WrittenBefore = { readonly kind: 'written_before'; readonly claim: IdempotencyClaim }

const make = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  identity: Identity,
  body: JsonObject,
): Promise<CallResult | WrittenBefore> => {
  const { form } = call
  const parsed = form.parse(body)
  if ('refusal' in parsed) return refuse(dependencies, call, parsed.refusal)
  const rehearsed = rehearsalOf(call, parsed.input)
  if (rehearsed !== null && 'refusal' in rehearsed) return refuse(dependencies, call, rehearsed.refusal)
  const reservation = createReservation(dependencies, call)
  let findings: unknown
  try {
    const { gather } = rehearsed ?? form
    const gathered = within(call.span, 'gather', () =>
      gather(parsed.input, callerOf(call, identity, reservation)),
    )
    findings = gathered instanceof Promise ? await gathered : gathered
  } finally {
    // The reservation is no longer needed, because the append checks whether the balance can pay.
    reservation.release()
  }
  if (isUnaffordable(findings)) return findings.unaffordable
  const decision = form.decide(findings, parsed.input)
  if ('refusal' in decision) return refuse(dependencies, call, decision.refusal)
  // The result is rendered before the charge, because a result that cannot be rendered must cost nothing.
  const rendered = renderResult(decision)
  return identity.kind === 'charged'
    ? deliverAgain(dependencies, call, identity, rendered)
    : charge(dependencies, call, identity, { decision, rendered })
}

const isUnaffordable = (findings: unknown): findings is Unaffordable =>
  typeof findings === 'object' && findings !== null && 'unaffordable' in findings

/** Returns the caller for `gather`. A call that is already paid reserves nothing. */
const callerOf = (
  { key, atMs, requestId }: AdmittedCall,
  identity: Identity,
  reservation: Reservation,
): Caller => {
  const repeated = 'paid' in identity ? identity.paid : null
  return {
    key,
    atMs,
    requestId,
    repeated,
    reserve: async (dearest) => {
      const result = repeated === null ? await reservation.hold(dearest) : null
      return result === null ? null : { unaffordable: result }
    },
  }
}

/** Records the answer with its charge. If the result shows the charge, adds it to the result. */
const charge = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  identity: Extract<Identity, { kind: 'request' | 'keyed' }>,
  { decision, rendered }: { readonly decision: Decided; readonly rendered: Rendered },
): Promise<CallResult | WrittenBefore> => {
  const recorded = await recordAnswer(dependencies, call, identity, decision.facts)
  switch (recorded.kind) {
    case 'written_before':
      return recorded
    case 'unpaid':
      return refusedUnpaid(dependencies, call, decision.facts, recorded.remaining)
    case 'recorded': {
      const { events, balance } = recorded.committed
      const billed = call.form.billed?.(decision.result, chargeLinesOf(events))
      const text = billed === undefined ? rendered : renderResult({ ...decision, result: billed })
      const credits = { charged: outcomeOfCall(events).charged, remaining: balance }
      const body = call.form.stream?.(decision.result) ?? bodyOf(call, text)
      const { retryAfterSeconds } = decision
      return { kind: 'answered', body, credits, paidRevision: recorded.paidRevision, retryAfterSeconds }
    }
  }
}

/** Answers a charged call whose answer is no longer stored. The call was made again and is recorded as a free replay. */
const deliverAgain = async (
  dependencies: CallDependencies,
  call: AdmittedCall,
  identity: Extract<Identity, { kind: 'charged' }>,
  rendered: Rendered,
): Promise<CallResult> => {
  const conclusion = { outcome: 'answered', facts: { kind: 'replay' } } as const
  const { balance } = await record(dependencies, call, identity, conclusion)
  const credits = { charged: 0n, remaining: balance }
  return { kind: 'replayed', status: 200, body: bodyOf(call, rendered), credits }
}

/** Records a failed call as failed, if the ledger accepts it. The answer is sent either way. */
const failed = async (
  dependencies: CallDependencies,
  call: Call,
  admitted: AdmittedCall | null,
  error: unknown,
): Promise<CallResult> => {
  const { logger, ledger, gates } = dependencies
  const { form, requestId } = call
  if (error instanceof LedgerOutcomeUnknown) {
    return { kind: 'failed', refusal: outcomeUnknown(isRepeatable(call), retryAfterSeconds(gates)) }
  }
  const away = error instanceof LedgerUnavailable || error instanceof Unavailable
  const refusal = away ? awayNow(dependencies) : internalError()
  if (!away) logger.error({ err: error, requestId, route: form.path }, 'a call failed')
  if (admitted === null) return { kind: 'failed', refusal }
  // While the event log is unavailable, the failure is neither recorded nor logged, because a line for every call would hide the cause.
  const remaining = away
    ? await balanceOrLastKnown(dependencies, admitted)
    : await recordRefusal(dependencies, admitted, { outcome: 'failed', code: refusal.code }).catch(
        (cause: unknown) => {
          logger.warn({ err: cause, requestId }, 'a failed call could not be recorded')
          return ledger.knownBalance(admitted.key.organizationId)
        },
      )
  return uncharged('failed', refusal, remaining)
}
