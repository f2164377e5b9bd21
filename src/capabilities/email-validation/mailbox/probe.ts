/**
 * Asks the mail servers of a domain whether they take mail for one mailbox, without sending any.
 *
 * It gathers and does not judge: what cannot be found out is a finding. Only addresses handed in are dialled, as they are; that they
 * may be dialled was decided before. It sends a recipient nobody has only after the real one was accepted, and remembers for
 * a day what came of it.
 */
import { LRUCache } from 'lru-cache'
import { deadlineSignal, within } from '../../../concurrency/deadline.ts'
import type { EmailAddress, MailboxEvidence, MailboxOutcome, MxTarget } from '../evidence.ts'
import { evidence, evidenceOf, isFinal, isUnreached, moreTelling } from './answer-evidence.ts'
import type { MailboxLane } from './lane.ts'
import { MailboxPool, type PoolBounds, type PoolStatus } from './pool.ts'
import { catchAllOf } from './smtp-classify.ts'
import { ehlo, mailboxOf, rcpt, senderOf } from './smtp-command.ts'

/** The part of pino's logger this room speaks to. Neither addresses nor replies are ever told. */
type MailboxLogger = Record<'debug', (details: object, message: string) => void>

/** What operations wants to know about mailboxes. Told on every check, so it has to be cheap. */
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

/** What one process does to the mail servers of the world at most, and how long it waits for them. */
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
  /** The name we give ourselves: a host name, or an address literal. */
  readonly helo: string
  /** The reverse-path; `<>` or empty for the null sender. */
  readonly mailFrom: string
  /** Milliseconds since the epoch. */
  readonly clock: () => number
  /** So many random octets that nobody can foresee. */
  readonly random: (size: number) => Uint8Array
  readonly logger: MailboxLogger
  readonly observe?: MailboxObserver | undefined
  readonly bounds?: Partial<MailboxBounds>
}

export type MailboxStatus = PoolStatus & {
  readonly checks: number
  readonly checksUnderWay: number
  readonly catchAllDomains: number
}

export type MailboxProbe = {
  /**
   * Never rejects because of what a server does, and never takes longer than `totalTimeoutMs`; a signal that is aborted ends it
   * as a time-out. At most three targets are tried, in order: the next one only where this one does not answer, or not now.
   */
  probe(
    address: EmailAddress,
    mx: { readonly targets: readonly MxTarget[] },
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<MailboxEvidence>
  /** Whoever waits for a session is told at once, checks under way have a second; sessions are taken leave of. */
  close(): Promise<void>
  status(): MailboxStatus
}

/**
 * Domains whose servers are known to refuse recipients that do not exist, for everybody: asking would tell nothing. Only where
 * a wrong entry is out of the question, because it would make a charge wrong. Yahoo, for one, is no such domain.
 */
const neverCatchAll: ReadonlySet<string> = new Set(['gmail.com', 'googlemail.com'])

/** 20 letters and digits of 32 make 100 bits: nobody has them as a mailbox, and nobody can guess them. */
const randomLocalPartLength = 20
const localPartAlphabet = 'abcdefghijkmnpqrstuvwxyz23456789'

/** @throws AssertionError where the HELO name or the sender is not well-formed. */
export const createMailboxProbe = (options: MailboxProbeOptions): MailboxProbe => {
  // Said once here, so that a bad setting fails at the start and not in the first dialogue.
  ehlo(options.helo)
  return new Probe(options, { ...mailboxBounds, ...options.bounds }, senderOf(options.mailFrom))
}

/** What a catch-all finding is about. */
const serverOf = (domain: string, { exchange }: Pick<Asked, 'exchange'>): string =>
  `${domain} ${exchange.toLowerCase()}`

type Asked = { readonly lane: MailboxLane; readonly exchange: string; readonly signal: AbortSignal }

/** `unasked`: whoever asked ran out of time, which tells nothing; null: the server's answer tells nothing. */
type CatchAllFinding = boolean | null | 'unasked'

class Probe implements MailboxProbe {
  readonly #options: MailboxProbeOptions
  readonly #bounds: MailboxBounds
  readonly #pool: MailboxPool
  readonly #catchAll: LRUCache<string, { readonly catchAll: boolean; readonly untilMs: number }>
  /** One random recipient at a time, domain and server: those who come meanwhile share the answer. */
  readonly #asking = new Map<string, Promise<CatchAllFinding>>()
  #checks = 0
  #underWay = 0
  #closed = false

  constructor(options: MailboxProbeOptions, bounds: MailboxBounds, sender: string) {
    this.#options = options
    this.#bounds = bounds
    this.#catchAll = new LRUCache({ max: bounds.catchAllDomainsMax })
    const { port, helo, clock } = options
    const { connectTimeoutMs, replyTimeoutMs, greetingTimeoutMs, openTimeoutMs } = bounds
    const session = { port, helo, sender, connectTimeoutMs, replyTimeoutMs, greetingTimeoutMs, openTimeoutMs }
    this.#pool = new MailboxPool(bounds, { clock, session })
  }

  async probe(
    address: EmailAddress,
    mx: { readonly targets: readonly MxTarget[] },
    { signal }: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<MailboxEvidence> {
    const found = await this.#check(address, mx.targets, signal)
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
      checksUnderWay: this.#underWay,
      catchAllDomains: this.#catchAll.size,
    }
  }

  async #check(
    address: EmailAddress,
    targets: readonly MxTarget[],
    signal: AbortSignal | undefined,
  ): Promise<MailboxEvidence> {
    const mailbox = mailboxOf(address)
    // By the octets that would be sent, whatever the address says of itself.
    const smtputf8 = !/^[ -~]*$/.test(mailbox)
    rcpt(mailbox, { smtputf8 })
    this.#checks++
    if (this.#closed || this.#underWay >= this.#bounds.checksMax) return evidence('timeout')
    this.#underWay++
    const ends = deadlineSignal(this.#bounds.totalTimeoutMs, signal)
    try {
      const domain = address.asciiDomain.toLowerCase()
      const found = await this.#tryTargets({ mailbox, smtputf8, domain }, targets, ends)
      const { outcome, code, connected } = found
      this.#options.logger.debug({ outcome, code, connected }, 'mailbox: checked')
      return found
    } finally {
      this.#underWay--
    }
  }

  async #tryTargets(
    recipient: { mailbox: string; smtputf8: boolean; domain: string },
    targets: readonly MxTarget[],
    signal: AbortSignal,
  ): Promise<MailboxEvidence> {
    let best = evidence('no_connect')
    const { targetsMax, addressesPerTargetMax } = this.#bounds
    for (const { exchange, addresses } of targets.slice(0, targetsMax)) {
      for (const address of this.#pool.inOrder(addresses).slice(0, addressesPerTargetMax)) {
        const lane = this.#pool.lane(address)
        const answer = await lane.ask({ exchange, ...recipient, urgent: false }, signal)
        const found = evidenceOf(answer)
        if (found.outcome === 'accepted') {
          const catchAll = await this.#catchAllOf(recipient.domain, { lane, exchange, signal })
          return { ...found, catchAll }
        }
        if (isFinal(answer)) return moreTelling(best, found)
        best = moreTelling(best, found)
        if (!isUnreached(answer)) break
      }
    }
    return best
  }

  async #catchAllOf(domain: string, asked: Asked): Promise<boolean | null> {
    if (neverCatchAll.has(domain)) return false
    // Of a server, not of the domain: a backup takes mail for anybody where the first one refuses the unknown.
    const server = serverOf(domain, asked)
    const known = this.#catchAll.get(server)
    if (known !== undefined && this.#options.clock() < known.untilMs) return known.catchAll
    const shared = this.#asking.get(server)
    const finding =
      shared === undefined
        ? 'unasked'
        : await within(shared, { signal: asked.signal }, () => 'unasked' as const)
    if (finding !== 'unasked') return finding
    if (asked.signal.aborted) return null
    const own = this.#askRandom(domain, asked)
    this.#asking.set(server, own)
    try {
      const answer = await own
      return answer === 'unasked' ? null : answer
    } finally {
      if (this.#asking.get(server) === own) this.#asking.delete(server)
    }
  }

  async #askRandom(domain: string, asked: Asked): Promise<CatchAllFinding> {
    const { lane, exchange, signal } = asked
    const octets = this.#options.random(randomLocalPartLength)
    // A letter first: there are systems that do not take a digit for the beginning of a name.
    const localPart = [...octets].map((octet, i) => localPartAlphabet[octet % (i === 0 ? 16 : 32)]).join('')
    const mailbox = mailboxOf({ localPart, asciiDomain: domain })
    const question = { exchange, mailbox, domain, smtputf8: false, urgent: true }
    const answer = await lane.ask(question, signal)
    if (answer.kind === 'deadline') return 'unasked'
    const catchAll = answer.kind === 'reply' && answer.stage === 'rcpt' ? catchAllOf(answer.reply) : null
    if (catchAll !== null)
      this.#catchAll.set(serverOf(domain, asked), {
        catchAll,
        untilMs: this.#options.clock() + this.#bounds.catchAllMs,
      })
    return catchAll
  }
}
