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
 * Asks the mail servers of a domain whether they take mail for one mailbox, without sending any.
 *
 * It gathers and does not judge: "could not be found out" is a finding. It dials only the addresses it is given, unchanged; other code
 * has already decided that they may be dialled. It asks about a non-existent recipient only after the real one was accepted, and
 * remembers the result for a day.
 */

/** The part of pino's logger that this code uses. Addresses and replies are never logged. */
type MailboxLogger = Record<'debug', (details: object, message: string) => void>

/** What operations need to know about mailboxes. Called on every check, so it must be cheap. */
export type MailboxObserver = {
  /** A mailbox was asked about, or could not be. */
  readonly mailboxChecked: (outcome: MailboxOutcome) => void
}

export type MailboxBounds = PoolBounds & {
  readonly connectTimeoutMs: number
  readonly replyTimeoutMs: number
  readonly greetingTimeoutMs: number
  /** From dialling to the first RCPT; less than a whole check, so that another target may be tried. */
  readonly openTimeoutMs: number
  readonly targetsMax: number
  readonly addressesPerTargetMax: number
  readonly checksMax: number
  readonly catchAllDomainsMax: number
  readonly catchAllMs: number
}

/** Limits on what one process does to the world's mail servers, and on how long it waits for them. */
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
  checksPerSessionAtOnceMax: 8,
  transactionsPerSessionMax: 50,
  refusalsPerSessionMax: 10,
  waitingPerAddressMax: 100,
  checksPerSecond: 20,
  checksBurst: 20,
  sessionIdleMs: 5_000,
  breakerStrikes: 5,
  breakerOpenMs: 60_000,
  breakerOpenMsMax: 900_000,
  catchAllDomainsMax: 50_000,
  catchAllMs: 86_400_000,
}

type MailboxProbeOptions = {
  readonly port: number
  /** Our own name: a host name, or an address literal. */
  readonly helo: string
  /** The reverse-path; `<>` or empty for the null sender. */
  readonly mailFrom: string
  /** Milliseconds since the epoch. */
  readonly clock: () => number
  /** The local part of a recipient that does not exist at a domain, the same for days. */
  readonly recipientOf: (domain: string) => string
  readonly logger: MailboxLogger
  readonly observe?: MailboxObserver | undefined
  readonly bounds?: Partial<MailboxBounds>
}

export type MailboxStatus = PoolStatus & {
  readonly checks: number
  readonly checksUnderWay: number
  readonly catchAllDomains: number
}

type ProbeCallOptions = {
  /** No caller waits for the result. */
  readonly background?: boolean
  /** The party that asks: parties share the capacity of one process. */
  readonly party?: string
}

export type MailboxProbe = {
  /**
   * Never rejects because of a server, and never takes longer than `totalTimeoutMs`. At most three targets are tried, in order: the next only if the current target does not answer, or not now.
   */
  probe(
    address: EmailAddress,
    mx: { readonly targets: readonly MxTarget[] },
    options?: ProbeCallOptions,
  ): Promise<MailboxEvidence>
  /** Callers waiting for a session are notified immediately, checks under way have a second; sessions are closed politely. */
  close(): Promise<void>
  status(): MailboxStatus
}

/** @throws AssertionError if the HELO name or the sender is not well-formed. */
export const createMailboxProbe = (options: MailboxProbeOptions): MailboxProbe => {
  // Checked once here, so that a bad setting fails at the start and not in the first dialogue.
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
  #checks = 0
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
    return {
      ...this.#pool.status(),
      checks: this.#checks,
      checksUnderWay: this.#underWay.inProgress,
      catchAllDomains: this.#random.size,
    }
  }

  async #check(
    address: EmailAddress,
    targets: readonly MxTarget[],
    { background, party }: Required<ProbeCallOptions>,
  ): Promise<MailboxEvidence> {
    const mailbox = mailboxOf(address)
    // By the octets that would be sent, regardless of the address's own flag.
    const smtputf8 = !/^[ -~]*$/.test(mailbox)
    rcpt(mailbox, { smtputf8 })
    this.#checks++
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
        // The server must know both recipients when we come again, or it would defer the other one then.
        if (found.outcome === 'greylisted' && !refusesUnknown(domain)) await this.#random.isCatchAll(server)
        if (isFinal(answer)) return moreTelling(best, found)
        best = moreTelling(best, found)
        if (!isUnreached(answer)) break
      }
    }
    return best
  }
}

/** What a lane's answer means for a mailbox, and which of several answers is the most informative. Pure. */

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

/** Outcomes that may be a reason to leave a server alone. Any other outcome is about one mailbox only. */
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
      // No server was asked: the outcome is the reason for that, without its reply, which was about another mailbox.
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
    // A server that disconnects in the middle will be available again some time.
    case 'closed':
      return evidence('temporary_failure', { connected: true, retryAfterSeconds: retrySecondsMax })
    case 'protocol':
    case 'tls':
      return evidence('cannot_verify', { connected: true })
  }
}

/**
 * No other target would know better: the mailbox was asked about, our sender was refused, or there is no time. A server that
 * rejects us before that speaks only for itself.
 */
const isFinal = (answer: LaneAnswer): boolean => {
  if (answer.kind !== 'reply') return ['smtputf8_unsupported', 'full', 'deadline'].includes(answer.kind)
  const { stage, reply } = answer
  if (reply.code === 421) return false
  return stage === 'mail' || stage === 'rcpt'
}

/** Another address of the same exchanger may be reached. */
const isUnreached = (answer: LaneAnswer): boolean =>
  answer.kind === 'open' || (answer.kind === 'failure' && answer.failure.kind === 'connect')

/** A reply is more informative than a connection, and a connection more than none. A dialled server stays recorded as dialled. */
const moreTelling = (before: MailboxEvidence, after: MailboxEvidence): MailboxEvidence => {
  const weight = ({ code, connected }: MailboxEvidence): number => (code !== null ? 2 : connected ? 1 : 0)
  if (weight(after) < weight(before)) return before
  return { ...after, connected: after.connected ?? before.connected }
}

/**
 * Whether a server accepts mail for every recipient of a domain: tested with a non-existent recipient, and remembered for a day.
 * Unless such a recipient is refused, acceptance of a mailbox means nothing.
 */

/** A server of a domain, as it is being asked. */
type AskedServer = {
  readonly domain: string
  readonly exchange: string
  readonly lane: MailboxLane
  readonly signal: AbortSignal
  readonly background: boolean
}

type RandomRecipientsOptions = {
  /** Milliseconds. */
  readonly clock: () => number
  /** The local part of the recipient that does not exist at a domain. */
  readonly recipientOf: (domain: string) => string
  readonly catchAllDomainsMax: number
  readonly catchAllMs: number
}

/** `undecided`: the reply shows neither; `no_reply`: there was no reply; `out_of_time`: the wait of the caller ended first. */
type Finding = boolean | 'undecided' | 'no_reply' | 'out_of_time'

/** Per server, not per domain: a backup may accept mail for anyone where the first server refuses unknown recipients. */
const keyOf = ({ domain, exchange }: AskedServer): string => `${domain} ${exchange.toLowerCase()}`

class RandomRecipients {
  readonly #options: RandomRecipientsOptions
  readonly #known: LRUCache<string, { readonly catchAll: boolean; readonly untilMs: number }>
  /** Servers that refused a mailbox as unknown, and until when that is believed. */
  readonly #refusing: LRUCache<string, number>
  /** One random recipient at a time per domain and server: callers who come in that time share the answer. */
  readonly #asking = new Map<string, Promise<Finding>>()

  constructor(options: RandomRecipientsOptions) {
    this.#options = options
    this.#known = new LRUCache({ max: options.catchAllDomainsMax })
    this.#refusing = new LRUCache({ max: options.catchAllDomainsMax })
  }

  /** Domains and servers with a known result. */
  get size(): number {
    return this.#known.size
  }

  /** The answer about the mailbox that a caller asked about. 5.1.1 shows that the server knows which mailboxes exist. */
  answered(server: AskedServer, answer: LaneAnswer): void {
    if (answer.kind !== 'reply' || answer.stage !== 'rcpt' || answer.reply.enhancedCode !== '5.1.1') return
    if (catchAllOf(answer.reply) === false)
      this.#refusing.set(keyOf(server), this.#options.clock() + this.#options.catchAllMs)
  }

  /** Null if it cannot be known. */
  async isCatchAll(server: AskedServer): Promise<boolean | null> {
    const key = keyOf(server)
    const known = this.#known.get(key)
    if (known !== undefined && this.#options.clock() < known.untilMs) return known.catchAll
    const finding = await this.#share(key, server)
    if (typeof finding === 'boolean') return finding
    // The server did not decide about this recipient, but it refused another.
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
