import { LRUCache } from 'lru-cache'
import { deadlineSignal, within } from '../../../../concurrency/deadline.ts'
import { createFairShare } from '../../../../concurrency/fair-share.ts'
import type { EmailAddress, MailboxEvidence, MailboxOutcome, MxTarget } from '../../evidence.ts'
import { refusesUnknown } from '../providers.ts'
import { catchAllOf, classifyReply } from '../replies/classify.ts'
import { ehlo, mailboxOf, rcpt, senderOf } from '../smtp/command.ts'
import type { SmtpFailure } from '../smtp/connection.ts'
import type { MailboxLane } from './lane.ts'
import type { Cause, LaneAnswer } from './lane-answer.ts'
import { MailboxPool, type PoolBounds, type PoolStatus } from './pool.ts'

/**
 * Asks a domain's mail servers whether they accept mail for one mailbox, without sending mail.
 *
 * The probe connects only to the given addresses, which the guard has already checked. It asks about a non-existent recipient only after the
 * real recipient was accepted or greylisted, and caches the result for a day.
 */

/** Addresses and replies are never logged. */
type MailboxLogger = Record<'debug', (details: object, message: string) => void>

/** Used by every check, so it must be cheap. */
export type MailboxObserver = {
  readonly mailboxChecked: (outcome: MailboxOutcome) => void
}

export type MailboxBounds = PoolBounds & {
  readonly connectTimeoutMs: number
  readonly replyTimeoutMs: number
  readonly greetingTimeoutMs: number
  /** The time limit from connecting to the first RCPT. It is less than the limit of a whole check, so that another target can be tried. */
  readonly openTimeoutMs: number
  readonly targetsMax: number
  readonly addressesPerTargetMax: number
  readonly checksMax: number
  readonly catchAllDomainsMax: number
  readonly catchAllMs: number
}

const mailboxBounds: MailboxBounds = {
  totalTimeoutMs: 10_000,
  connectTimeoutMs: 3_000,
  replyTimeoutMs: 5_000,
  greetingTimeoutMs: 7_000,
  openTimeoutMs: 8_000,
  targetsMax: 3,
  addressesPerTargetMax: 2,
  checksMax: 1_000,
  sessionsMax: 200,
  addressesMax: 10_000,
  sessionsPerAddressMax: 4,
  transactionsPerSessionMax: 50,
  refusalsPerSessionMax: 10,
  waitingPerAddressMax: 100,
  checksPerSecond: 20,
  checksBurst: 20,
  sessionIdleMs: 5_000,
  connectAgainMs: 1_000,
  breakerStrikes: 5,
  breakerOpenMs: 60_000,
  breakerOpenMsMax: 900_000,
  catchAllDomainsMax: 50_000,
  catchAllMs: 86_400_000,
}

type MailboxProbeOptions = {
  readonly port: number
  readonly helo: string
  readonly mailFrom: string
  /** In milliseconds. Only differences matter. */
  readonly clock: () => number
  /** The local part of a recipient that does not exist at a domain. It stays the same for days. */
  readonly recipientOf: (domain: string) => string
  readonly logger: MailboxLogger
  readonly observe?: MailboxObserver | undefined
  readonly bounds?: Partial<MailboxBounds>
}

export type MailboxStatus = PoolStatus & { readonly checksUnderWay: number }

type ProbeCallOptions = {
  readonly background?: boolean
  /** The organization of the call. Parties (organizations) share the capacity of one process. */
  readonly party?: string
}

export type MailboxProbe = {
  /**
   * Never rejects because of a server, and takes at most `totalTimeoutMs`. The next target is tried only if the current one does not give a
   * final answer.
   */
  probe(
    address: EmailAddress,
    mx: { readonly targets: readonly MxTarget[] },
    options?: ProbeCallOptions,
  ): Promise<MailboxEvidence>
  /** Answers the callers that wait for a session. Checks in progress have one second to finish. */
  close(): Promise<void>
  status(): MailboxStatus
}

/** @throws AssertionError if the HELO name or the sender is not well-formed. */
export const createMailboxProbe = (options: MailboxProbeOptions): MailboxProbe => {
  // Checked here, so that an invalid setting fails at startup and not in the first session.
  ehlo(options.helo)
  return new Probe(options, { ...mailboxBounds, ...options.bounds }, senderOf(options.mailFrom))
}

type Recipient = {
  readonly mailbox: string
  readonly smtputf8: boolean
  readonly domain: string
  readonly background: boolean
  readonly party: string
}

class Probe implements MailboxProbe {
  readonly #options: MailboxProbeOptions
  readonly #bounds: MailboxBounds
  readonly #pool: MailboxPool
  readonly #random: RandomRecipients
  readonly #underWay = createFairShare(() => this.#bounds.checksMax)
  #closed = false

  constructor(options: MailboxProbeOptions, bounds: MailboxBounds, sender: string) {
    this.#options = options
    this.#bounds = bounds
    const { port, helo, clock, recipientOf } = options
    const { catchAllDomainsMax, catchAllMs } = bounds
    this.#random = new RandomRecipients({ clock, recipientOf, catchAllDomainsMax, catchAllMs })
    const { connectTimeoutMs, replyTimeoutMs, greetingTimeoutMs, openTimeoutMs } = bounds
    const session = { port, helo, sender, connectTimeoutMs, replyTimeoutMs, greetingTimeoutMs, openTimeoutMs }
    this.#pool = new MailboxPool(bounds, { clock, session })
  }

  async probe(
    address: EmailAddress,
    mx: { readonly targets: readonly MxTarget[] },
    { background = false, party = '' }: ProbeCallOptions = {},
  ): Promise<MailboxEvidence> {
    const found = await this.#check(address, mx.targets, { background, party })
    this.#options.observe?.mailboxChecked(found.outcome)
    return found
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#pool.close()
  }

  status(): MailboxStatus {
    return { ...this.#pool.status(), checksUnderWay: this.#underWay.inProgress }
  }

  async #check(
    address: EmailAddress,
    targets: readonly MxTarget[],
    { background, party }: Required<ProbeCallOptions>,
  ): Promise<MailboxEvidence> {
    const mailbox = mailboxOf(address)
    // This depends on the text to be sent, and not on the flag of the address.
    const smtputf8 = !/^[ -~]*$/.test(mailbox)
    rcpt(mailbox, { smtputf8 })
    const leave = this.#closed ? null : this.#underWay.enter(party)
    if (leave === null) return evidence('timeout')
    const ends = deadlineSignal(this.#bounds.totalTimeoutMs)
    try {
      const domain = address.asciiDomain.toLowerCase()
      const found = await this.#tryTargets({ mailbox, smtputf8, domain, background, party }, targets, ends)
      const { outcome, code, connected } = found
      this.#options.logger.debug({ outcome, code, connected }, 'mailbox: checked')
      return found
    } finally {
      leave()
    }
  }

  async #tryTargets(
    recipient: Recipient,
    targets: readonly MxTarget[],
    signal: AbortSignal,
  ): Promise<MailboxEvidence> {
    let best = evidence('no_connect')
    const { targetsMax, addressesPerTargetMax } = this.#bounds
    for (const { exchange, addresses } of targets.slice(0, targetsMax)) {
      for (const address of this.#pool.inOrder(addresses).slice(0, addressesPerTargetMax)) {
        const lane = this.#pool.lane(address)
        const answer = await lane.ask({ exchange, ...recipient, own: false }, signal)
        const found = evidenceOf(answer)
        const { domain, background } = recipient
        const server = { domain, exchange, lane, signal, background }
        this.#random.answered(server, answer)
        if (found.outcome === 'accepted') {
          const catchAll = refusesUnknown(domain) ? false : await this.#random.isCatchAll(server)
          return { ...found, catchAll }
        }
        // Greylisting is per recipient. The server must see both recipients now; otherwise it defers the second recipient next time.
        if (found.outcome === 'greylisted' && !refusesUnknown(domain)) await this.#random.isCatchAll(server)
        if (isFinal(answer)) return moreTelling(best, found)
        best = moreTelling(best, found)
        if (!isUnreached(answer)) break
      }
    }
    return best
  }
}

const retrySecondsMin = 60
const retrySecondsMax = 900

const evidence = (
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

/** Outcomes that can open the circuit breaker of a server. Any other outcome concerns only one mailbox. */
const aboutUs: ReadonlySet<MailboxOutcome> = new Set([
  'temporary_failure',
  'cannot_verify',
  'blocked',
  'no_connect',
  'timeout',
])

const evidenceOf = (answer: LaneAnswer): MailboxEvidence => {
  switch (answer.kind) {
    case 'reply':
      return replied(answer)
    case 'failure':
      return failed(answer.failure)
    case 'smtputf8_unsupported':
      return evidence('smtputf8_unsupported', { connected: true })
    case 'open': {
      // No server was asked. The outcome contains the reason, but not the reply, because the reply was about a different mailbox.
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
    case 'closed':
      return evidence('temporary_failure', { connected: true, retryAfterSeconds: retrySecondsMax })
    case 'protocol':
    case 'tls':
      return evidence('cannot_verify', { connected: true })
  }
}

/**
 * Whether no other target can give a better answer, because the server was asked about the mailbox or refused our sender, or the time limit
 * has passed. After an earlier refusal, another target may still answer.
 */
const isFinal = (answer: LaneAnswer): boolean => {
  if (answer.kind !== 'reply') return ['smtputf8_unsupported', 'full', 'deadline'].includes(answer.kind)
  const { stage, reply } = answer
  if (reply.code === 421) return false
  return stage === 'mail' || stage === 'rcpt'
}

/** Whether another address of the same exchanger should be tried. */
const isUnreached = (answer: LaneAnswer): boolean =>
  answer.kind === 'open' || (answer.kind === 'failure' && answer.failure.kind === 'connect')

/** Returns the more informative evidence. A reply is better than a connection without a reply, which is better than no connection. */
const moreTelling = (before: MailboxEvidence, after: MailboxEvidence): MailboxEvidence => {
  const weight = ({ code, connected }: MailboxEvidence): number => (code !== null ? 2 : connected ? 1 : 0)
  if (weight(after) < weight(before)) return before
  return { ...after, connected: after.connected ?? before.connected }
}

type AskedServer = {
  readonly domain: string
  readonly exchange: string
  readonly lane: MailboxLane
  readonly signal: AbortSignal
  readonly background: boolean
}

type RandomRecipientsOptions = {
  readonly clock: () => number
  readonly recipientOf: (domain: string) => string
  readonly catchAllDomainsMax: number
  readonly catchAllMs: number
}

/**
 * Whether every recipient is accepted. `undecided`: the reply does not show this; `no_reply`: there was no reply; `out_of_time`: the caller's
 * time limit passed first.
 */
type Finding = boolean | 'undecided' | 'no_reply' | 'out_of_time'

/** The key contains the server, because a backup server may accept every recipient even if the main server refuses unknown recipients. */
const keyOf = ({ domain, exchange }: AskedServer): string => `${domain} ${exchange.toLowerCase()}`

/** Tests with a non-existent recipient whether a server accepts every recipient of a domain; if so, acceptance proves nothing. */
class RandomRecipients {
  readonly #options: RandomRecipientsOptions
  readonly #known: LRUCache<string, { readonly catchAll: boolean; readonly untilMs: number }>
  /** Servers that have refused a mailbox as unknown, each with the time until which the refusal counts. */
  readonly #refusing: LRUCache<string, number>
  /** At most one question at a time per domain and server; later callers share its answer. */
  readonly #asking = new Map<string, Promise<Finding>>()

  constructor(options: RandomRecipientsOptions) {
    this.#options = options
    this.#known = new LRUCache({ max: options.catchAllDomainsMax })
    this.#refusing = new LRUCache({ max: options.catchAllDomainsMax })
  }

  /** Stores the answer about a caller's mailbox, because 5.1.1 shows that the server checks which mailboxes exist. */
  answered(server: AskedServer, answer: LaneAnswer): void {
    if (answer.kind !== 'reply' || answer.stage !== 'rcpt' || answer.reply.enhancedCode !== '5.1.1') return
    if (catchAllOf(answer.reply) === false)
      this.#refusing.set(keyOf(server), this.#options.clock() + this.#options.catchAllMs)
  }

  async isCatchAll(server: AskedServer): Promise<boolean | null> {
    const key = keyOf(server)
    const known = this.#known.get(key)
    if (known !== undefined && this.#options.clock() < known.untilMs) return known.catchAll
    const finding = await this.#share(key, server)
    if (typeof finding === 'boolean') return finding
    // The server gave no clear answer about this recipient, but has refused an unknown recipient before.
    return finding === 'undecided' && this.#options.clock() < (this.#refusing.get(key) ?? 0) ? false : null
  }

  async #share(key: string, server: AskedServer): Promise<Finding> {
    const shared = this.#asking.get(key)
    if (shared !== undefined) {
      const finding = await within(shared, { signal: server.signal }, () => 'out_of_time' as const)
      if (finding !== 'out_of_time') return finding
    }
    if (server.signal.aborted) return 'out_of_time'
    const own = this.#ask(key, server)
    this.#asking.set(key, own)
    try {
      return await own
    } finally {
      if (this.#asking.get(key) === own) this.#asking.delete(key)
    }
  }

  async #ask(key: string, { domain, exchange, lane, signal, background }: AskedServer): Promise<Finding> {
    const mailbox = mailboxOf({ localPart: this.#options.recipientOf(domain), asciiDomain: domain })
    const question = { exchange, mailbox, domain, smtputf8: false, own: true, background, party: '' }
    const answer = await lane.ask(question, signal)
    if (answer.kind === 'deadline') return 'out_of_time'
    if (answer.kind !== 'reply' || answer.stage !== 'rcpt') return 'no_reply'
    const catchAll = catchAllOf(answer.reply)
    if (catchAll === null) return 'undecided'
    this.#known.set(key, { catchAll, untilMs: this.#options.clock() + this.#options.catchAllMs })
    return catchAll
  }
}
