import type { BreakerStanding } from '../../../concurrency/circuit-breaker.ts'
import type { Cause, LaneAnswer, Question } from './lane-answer.ts'

/** What operations may see of one address of a mail server. Of replies the code alone: their text may hold a mailbox. */

export const laneOutcomes = [
  'accepted',
  'deferred',
  'refused',
  'failed',
  'late',
  'turned_away',
  'too_many',
] as const
type LaneOutcome = (typeof laneOutcomes)[number]

const outcomeOf = (answer: LaneAnswer): LaneOutcome => {
  switch (answer.kind) {
    case 'reply':
      return answer.reply.code < 400 ? 'accepted' : answer.reply.code < 500 ? 'deferred' : 'refused'
    case 'open':
      return 'turned_away'
    case 'full':
      return 'too_many'
    case 'deadline':
      return 'late'
    default:
      return 'failed'
  }
}

/** Such as `421 4.7.0 at rcpt`, or `timeout`. */
const causeText = (cause: Cause): string => {
  if (cause.kind === 'failure') return cause.failure.kind
  const { code, enhancedCode } = cause.reply
  return `${code}${enhancedCode === null ? '' : ` ${enhancedCode}`} at ${cause.stage}`
}

/** Domains kept of those that were asked about. */
const domainsMax = 5

/** Counts what came of the questions to one address, since it was first asked. */
export class LaneTally {
  exchange = ''
  /** The latest last. */
  readonly domains = new Set<string>()
  readonly counts: Record<LaneOutcome, number> = {
    ...{ accepted: 0, deferred: 0, refused: 0, failed: 0 },
    ...{ late: 0, turned_away: 0, too_many: 0 },
  }

  note({ exchange, domain }: Question, answer: LaneAnswer): LaneAnswer {
    this.exchange = exchange
    this.domains.delete(domain)
    this.domains.add(domain)
    for (const first of this.domains) {
      if (this.domains.size <= domainsMax) break
      this.domains.delete(first)
    }
    this.counts[outcomeOf(answer)]++
    return answer
  }
}

/** What one process knows of one address. */
export type LaneReport = {
  readonly address: string
  readonly exchange: string
  readonly domains: readonly string[]
  readonly sessions: number
  readonly idle: number
  readonly waiting: number
  readonly breaker: 'closed' | 'open' | 'half_open'
  /** How much longer it is open; null: it is not. */
  readonly openForMs: number | null
  /** Why it opened last, while it is not closed. */
  readonly why: string | null
  /** How often it opened. */
  readonly openings: number
  /** No more sessions than so many at a time, because the server refused one more. */
  readonly sessionsMax: number
  /** It is asked without TLS, which failed. */
  readonly plain: boolean
  readonly counts: Readonly<Record<LaneOutcome, number>>
}

export const reportOf = (
  of: Pick<LaneReport, 'address' | 'sessions' | 'idle' | 'waiting' | 'sessionsMax' | 'plain'>,
  { exchange, domains, counts }: LaneTally,
  { state, cause, forMs, openings }: BreakerStanding<Cause>,
): LaneReport => ({
  ...{ address: of.address, sessions: of.sessions, idle: of.idle, waiting: of.waiting },
  ...{ sessionsMax: of.sessionsMax, plain: of.plain, exchange, openings },
  domains: [...domains],
  breaker: state,
  openForMs: forMs,
  why: cause === null ? null : causeText(cause),
  counts: { ...counts },
})
