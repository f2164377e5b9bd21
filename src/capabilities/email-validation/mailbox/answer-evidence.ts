/** What an answer of a lane says about a mailbox, and which of several answers says most. Pure. */
import type { MailboxEvidence, MailboxOutcome } from '../evidence.ts'
import type { Cause, LaneAnswer } from './lane-answer.ts'
import { classifyReply } from './smtp-classify.ts'
import type { SmtpFailure } from './smtp-connection.ts'

const retrySecondsMin = 60
const retrySecondsMax = 900

export const evidence = (
  outcome: MailboxEvidence['outcome'],
  more: Partial<MailboxEvidence> = {},
): MailboxEvidence => ({
  outcome,
  connected: null,
  catchAll: null,
  code: null,
  enhancedCode: null,
  retryAfterSeconds: null,
  ...more,
})

/** What may be a server's reason to be left alone. Any other outcome is about one mailbox, and not the next one's. */
const aboutUs: ReadonlySet<MailboxOutcome> = new Set([
  'temporary_failure',
  'cannot_verify',
  'blocked',
  'no_connect',
  'timeout',
])

export const evidenceOf = (answer: LaneAnswer): MailboxEvidence => {
  switch (answer.kind) {
    case 'reply':
      return replied(answer)
    case 'failure':
      return failed(answer.failure)
    case 'smtputf8_unsupported':
      return evidence('smtputf8_unsupported', { connected: true })
    case 'open': {
      // Nobody was asked: the outcome is the reason why not, without its reply, which was about somebody else.
      const { outcome } = evidenceOf(answer.cause)
      const reason = aboutUs.has(outcome) ? outcome : 'temporary_failure'
      const seconds = Math.ceil(answer.forMs / 1_000)
      return evidence(reason, {
        retryAfterSeconds: Math.min(Math.max(seconds, retrySecondsMin), retrySecondsMax),
      })
    }
    case 'full':
      return evidence('timeout')
    case 'deadline':
      return evidence('timeout', { connected: answer.connected })
  }
}

const replied = ({ stage, reply }: Extract<Cause, { kind: 'reply' }>): MailboxEvidence => {
  const { outcome, retryAfterSeconds } = classifyReply(stage, reply)
  const { code, enhancedCode } = reply
  return evidence(outcome, { connected: true, code, enhancedCode, retryAfterSeconds })
}

const failed = ({ kind }: SmtpFailure): MailboxEvidence => {
  switch (kind) {
    case 'connect':
      return evidence('no_connect', { connected: false })
    case 'timeout':
      return evidence('timeout', { connected: true })
    // A server that goes away in the middle is there again some time.
    case 'closed':
      return evidence('temporary_failure', { connected: true, retryAfterSeconds: retrySecondsMax })
    case 'protocol':
    case 'tls':
      return evidence('cannot_verify', { connected: true })
  }
}

/**
 * No other target would know better: the mailbox was asked about, our sender was refused, or there is no time. A server that
 * turns us away before that speaks for itself alone.
 */
export const isFinal = (answer: LaneAnswer): boolean => {
  if (answer.kind !== 'reply') return ['smtputf8_unsupported', 'full', 'deadline'].includes(answer.kind)
  const { stage, reply } = answer
  if (reply.code === 421) return false
  return stage === 'mail' || stage === 'rcpt'
}

/** Another address of the same exchanger may be reached. */
export const isUnreached = (answer: LaneAnswer): boolean =>
  answer.kind === 'open' || (answer.kind === 'failure' && answer.failure.kind === 'connect')

/** A reply tells more than a connection, and that more than none. Whoever was dialled stays dialled. */
export const moreTelling = (before: MailboxEvidence, after: MailboxEvidence): MailboxEvidence => {
  const weight = ({ code, connected }: MailboxEvidence): number => (code !== null ? 2 : connected ? 1 : 0)
  if (weight(after) < weight(before)) return before
  return { ...after, connected: after.connected ?? before.connected }
}
