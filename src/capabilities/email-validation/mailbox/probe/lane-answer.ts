/** The questions and answers at one address of a mail server, and their bounds. */
import { type CircuitBreaker, createCircuitBreaker } from '../../../../concurrency/circuit-breaker.ts'
import { refusesClient } from '../replies/classify.ts'
import type { SmtpStage } from '../replies/rules.ts'
import { SmtpFailure } from '../smtp/connection.ts'
import type { SmtpReply } from '../smtp/reply.ts'
import { SmtpRefusal } from '../smtp/session.ts'

export type LaneBounds = {
  readonly sessionsPerAddressMax: number
  /** Recipients asked about at the same time in one session, if the server can pipeline and answers promptly. */
  readonly checksPerSessionAtOnceMax: number
  readonly transactionsPerSessionMax: number
  /** Postfix slows down a client after 10 errors, 4xx or 5xx, and disconnects it after 20 (`smtpd_soft_error_limit`). */
  readonly refusalsPerSessionMax: number
  readonly waitingPerAddressMax: number
  readonly checksPerSecond: number
  readonly checksBurst: number
  readonly sessionIdleMs: number
  readonly breakerStrikes: number
  readonly breakerOpenMs: number
  readonly breakerOpenMsMax: number
  /** For a whole check, from its start to its answer. */
  readonly totalTimeoutMs: number
}

export type Question = {
  readonly exchange: string
  readonly mailbox: string
  /** The mailbox's domain. A server may refuse us for one of the domains it serves. */
  readonly domain: string
  readonly smtputf8: boolean
  /** A recipient of ours that does not exist: it completes a check that is under way, and so goes before waiting checks. */
  readonly own: boolean
  /** No caller waits for the answer. */
  readonly background: boolean
  /** The party that asks: parties take turns. */
  readonly party: string
}

export type LaneAnswer =
  | { readonly kind: 'reply'; readonly stage: SmtpStage; readonly reply: SmtpReply }
  | { readonly kind: 'failure'; readonly failure: SmtpFailure }
  | { readonly kind: 'smtputf8_unsupported' }
  /** The breaker is open because of that answer. */
  | { readonly kind: 'open'; readonly cause: Cause; readonly forMs: number }
  /** Too many wait already. */
  | { readonly kind: 'full' }
  /** The caller's time is over. `connected` is null if no server was dialled in that time. */
  | { readonly kind: 'deadline'; readonly connected: boolean | null }

/** An answer that asked us to stay away. */
export type Cause = Extract<LaneAnswer, { kind: 'reply' | 'failure' }>

export const laneBreaker = (bounds: LaneBounds): CircuitBreaker<Cause> =>
  createCircuitBreaker({
    failuresMax: bounds.breakerStrikes,
    openMs: bounds.breakerOpenMs,
    openMsMax: bounds.breakerOpenMsMax,
    trialMs: bounds.totalTimeoutMs,
  })

/** In a used session: it broke, or it was refused something that a fresh session would be granted. */
export const isWornOut = (answer: LaneAnswer): boolean => {
  if (answer.kind === 'failure') return answer.failure.kind === 'closed' || answer.failure.kind === 'protocol'
  if (answer.kind !== 'reply') return false
  const { stage, reply } = answer
  return stage === 'mail' || reply.code === 421 || reply.code === 503 || reply.enhancedCode === '4.5.3'
}

/**
 * Reports to the breaker of an address what the answer to a question means for us. Failed openings are not counted here, but
 * at the failure: once, no matter how many callers waited for the session.
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
  // A gateway may refuse such recipients by a policy. The other mailboxes that it accepts mail for must not suffer for it.
  if (own) {
    breaker.abandon()
    return
  }
  // A policy at RCPT may apply to one domain only, and the server's other domains must not suffer for it.
  const about = stage === 'rcpt' && reply.code >= 500 ? domain : null
  breaker.fail(answer, nowMs, { about, background })
}

export const causeOf = (error: unknown): Cause => {
  if (error instanceof SmtpRefusal) return { kind: 'reply', stage: error.stage, reply: error.reply }
  if (error instanceof SmtpFailure) return { kind: 'failure', failure: error }
  // No caller awaits an opening as such, so an error thrown here would end the process.
  return { kind: 'failure', failure: new SmtpFailure('protocol', 'no session', { cause: error }) }
}
