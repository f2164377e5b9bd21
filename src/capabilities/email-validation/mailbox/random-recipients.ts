/**
 * Whether a server takes mail for any recipient of a domain: found out with a recipient that no one has, and remembered for a day.
 * Without a refusal of such a one, an accepted mailbox says nothing.
 */
import { LRUCache } from 'lru-cache'
import { within } from '../../../concurrency/deadline.ts'
import type { MailboxLane } from './lane.ts'
import type { LaneAnswer } from './lane-answer.ts'
import { catchAllOf } from './smtp-classify.ts'
import { mailboxOf } from './smtp-command.ts'

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
  /** The local part of the recipient that no one has at a domain. */
  readonly recipientOf: (domain: string) => string
  readonly catchAllDomainsMax: number
  readonly catchAllMs: number
}

/** `unsaid`: the reply says neither; `unheard`: there is none; `unasked`: the caller who asked ran out of time. */
type Finding = boolean | 'unsaid' | 'unheard' | 'unasked'

/** Of a server, not of the domain: a backup takes mail for anyone where the first one refuses the unknown. */
const keyOf = ({ domain, exchange }: AskedServer): string => `${domain} ${exchange.toLowerCase()}`

export class RandomRecipients {
  readonly #options: RandomRecipientsOptions
  readonly #known: LRUCache<string, { readonly catchAll: boolean; readonly untilMs: number }>
  /** Servers that refused a mailbox as unknown, until when that is believed. */
  readonly #refusing: LRUCache<string, number>
  /** One random recipient at a time, domain and server: those who come meanwhile share the answer. */
  readonly #asking = new Map<string, Promise<Finding>>()

  constructor(options: RandomRecipientsOptions) {
    this.#options = options
    this.#known = new LRUCache({ max: options.catchAllDomainsMax })
    this.#refusing = new LRUCache({ max: options.catchAllDomainsMax })
  }

  /** Domains and servers of which it is known. */
  get size(): number {
    return this.#known.size
  }

  /** What a mailbox that a caller asked about was answered. 5.1.1 shows that the server knows which ones there are. */
  answered(server: AskedServer, answer: LaneAnswer): void {
    if (answer.kind !== 'reply' || answer.stage !== 'rcpt' || answer.reply.enhancedCode !== '5.1.1') return
    if (catchAllOf(answer.reply) === false)
      this.#refusing.set(keyOf(server), this.#options.clock() + this.#options.catchAllMs)
  }

  /** Null where it cannot be known. */
  async isCatchAll(server: AskedServer): Promise<boolean | null> {
    const key = keyOf(server)
    const known = this.#known.get(key)
    if (known !== undefined && this.#options.clock() < known.untilMs) return known.catchAll
    const finding = await this.#share(key, server)
    if (typeof finding === 'boolean') return finding
    // The server would not say it of this recipient, but did of another one.
    return finding === 'unsaid' && this.#options.clock() < (this.#refusing.get(key) ?? 0) ? false : null
  }

  async #share(key: string, server: AskedServer): Promise<Finding> {
    const shared = this.#asking.get(key)
    if (shared !== undefined) {
      const finding = await within(shared, { signal: server.signal }, () => 'unasked' as const)
      if (finding !== 'unasked') return finding
    }
    if (server.signal.aborted) return 'unasked'
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
    if (answer.kind === 'deadline') return 'unasked'
    if (answer.kind !== 'reply' || answer.stage !== 'rcpt') return 'unheard'
    const catchAll = catchAllOf(answer.reply)
    if (catchAll === null) return 'unsaid'
    this.#known.set(key, { catchAll, untilMs: this.#options.clock() + this.#options.catchAllMs })
    return catchAll
  }
}
