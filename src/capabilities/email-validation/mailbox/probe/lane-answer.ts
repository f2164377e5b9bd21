import { type CircuitBreaker, createCircuitBreaker } from '../../../../concurrency/circuit-breaker.ts'
import { refusesClient } from '../replies/classify.ts'
import type { SmtpStage } from '../replies/rules.ts'
import { SmtpFailure } from '../smtp/connection.ts'
import type { SmtpReply } from '../smtp/reply.ts'
import { SmtpRefusal } from '../smtp/session.ts'

export type LaneBounds = {
  readonly sessionsPerAddressMax: number
  readonly transactionsPerSessionMax: number
  /** Postfix slows down a client after 10 errors, 4xx or 5xx, and disconnects it after 20 (`smtpd_soft_error_limit`). */
  readonly refusalsPerSessionMax: number
  readonly waitingPerAddressMax: number
  readonly checksPerSecond: number
  readonly checksBurst: number
  readonly sessionIdleMs: number
  /** The time until we connect again if a server may still count a session that it has closed. */
  readonly connectAgainMs: number
  readonly breakerStrikes: number
  readonly breakerOpenMs: number
  readonly breakerOpenMsMax: number
  /** The time limit for a whole check, from its start to its answer. */
  readonly totalTimeoutMs: number
}

export type Question = {
  readonly exchange: string
  readonly mailbox: string
  /** A server can refuse us for one domain and serve us for another. */
  readonly domain: string
  readonly smtputf8: boolean
  /** True if we invented the recipient, which does not exist. Such a question comes first, because it completes a check in progress. */
  readonly own: boolean
  /** True if no caller waits for the answer. */
  readonly background: boolean
  readonly party: string
}

export type LaneAnswer =
  | { readonly kind: 'reply'; readonly stage: SmtpStage; readonly reply: SmtpReply }
  | { readonly kind: 'failure'; readonly failure: SmtpFailure }
  | { readonly kind: 'smtputf8_unsupported' }
  /** The circuit breaker is open because of the answer in `cause`. */
  | { readonly kind: 'open'; readonly cause: Cause; readonly forMs: number }
  | { readonly kind: 'full' }
  /** The caller's time limit has passed. `connected` is null if we did not connect to a server. */
  | { readonly kind: 'deadline'; readonly connected: boolean | null }

/** An answer that can open the circuit breaker. */
export type Cause = Extract<LaneAnswer, { kind: 'reply' | 'failure' }>

export const laneBreaker = (bounds: LaneBounds): CircuitBreaker<Cause> =>
  createCircuitBreaker({
    failuresMax: bounds.breakerStrikes,
    openMs: bounds.breakerOpenMs,
    openMsMax: bounds.breakerOpenMsMax,
    trialMs: bounds.totalTimeoutMs,
  })

/** Whether a used session failed, or the server refused a command that it would accept in a new session. */
export const isWornOut = (answer: LaneAnswer): boolean => {
  if (answer.kind === 'failure') return answer.failure.kind === 'closed' || answer.failure.kind === 'protocol'
  if (answer.kind !== 'reply') return false
  const { stage, reply } = answer
  return stage === 'mail' || reply.code === 421 || reply.code === 503 || reply.enhancedCode === '4.5.3'
}

/**
 * Counts a refusal of our client at the circuit breaker of the address. A failed opening is counted in `lane.ts`, once for all waiting
 * callers.
 */
export const countAnswer = (
  breaker: CircuitBreaker<Cause>,
  { domain, own, background }: Question,
  answer: LaneAnswer,
  nowMs: number,
): void => {
  if (answer.kind !== 'reply' || (answer.stage !== 'mail' && answer.stage !== 'rcpt')) return
  const { stage, reply } = answer
  if (!refusesClient(stage, reply)) {
    breaker.succeed()
    return
  }
  // A gateway's policy against non-existent recipients must not affect the real mailboxes behind the gateway.
  if (own) {
    breaker.abandon()
    return
  }
  // A policy at RCPT can apply to one domain only, and must not affect the server's other domains.
  const about = stage === 'rcpt' && reply.code >= 500 ? domain : null
  breaker.fail(answer, nowMs, { about, background })
}

export const causeOf = (error: unknown): Cause => {
  if (error instanceof SmtpRefusal) return { kind: 'reply', stage: error.stage, reply: error.reply }
  if (error instanceof SmtpFailure) return { kind: 'failure', failure: error }
  // No caller awaits the opening of a session, so even an unknown error must become a failure. A thrown error would end the process.
  return { kind: 'failure', failure: new SmtpFailure('protocol', 'no session', { cause: error }) }
}
