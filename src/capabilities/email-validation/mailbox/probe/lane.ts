import type { CircuitBreaker } from '../../../../concurrency/circuit-breaker.ts'
import { within } from '../../../../concurrency/deadline.ts'
import { SmtpFailure } from '../smtp/connection.ts'
import { openSession, type SessionOptions, type SmtpSession } from '../smtp/session.ts'
import { type Held, HeldSessions } from './held-sessions.ts'
import {
  type Cause,
  causeOf,
  countAnswer,
  isWornOut,
  type LaneAnswer,
  type LaneBounds,
  laneBreaker,
  type Question,
} from './lane-answer.ts'

/**
 * Everything we do at one address of a mail server: a few reused sessions, a rate limit, a queue and a breaker. Providers
 * count our traffic per address, so the bounds belong to the address and not to the caller.
 */

/** State shared by all lanes. */
export type LaneSurroundings = {
  readonly clock: () => number
  readonly session: Omit<SessionOptions, 'exchange' | 'address' | 'plainOnly'>
  /** Takes a place for one more session of this process; false if none is free. */
  readonly takePlace: (lane: MailboxLane) => boolean
  readonly returnPlace: () => void
  /** A lane is waiting for a place, so an idle session must end. */
  readonly placeWanted: () => boolean
  readonly opened: () => void
}

/** A slow answer, for example from a server that asks another server first, must not hold up the answers behind it. */
const promptMsMax = 1_000
/** How long a server whose TLS failed is contacted without TLS, and how long no more sessions are opened to a server than it accepted. */
const memoryMs = 600_000

export class MailboxLane {
  readonly #address: string
  readonly #bounds: LaneBounds
  readonly #around: LaneSurroundings
  readonly #breaker: CircuitBreaker<Cause>
  readonly #bucket: TokenBucket
  readonly #sessions: HeldSessions
  readonly #waiting = new Waiters()
  #opening = 0
  #rateTimer: NodeJS.Timeout | undefined
  #closing = false
  #plainUntilMs = 0
  /** No more sessions than the server had open when it refused one; otherwise we would try, and be refused, again immediately. */
  #fewSessions = { sessions: 0, untilMs: 0 }
  readonly #ended = new AbortController()

  constructor(address: string, bounds: LaneBounds, around: LaneSurroundings) {
    this.#address = address
    this.#bounds = bounds
    this.#around = around
    this.#sessions = new HeldSessions(bounds)
    this.#bucket = createTokenBucket({ perSecond: bounds.checksPerSecond, burst: bounds.checksBurst })
    this.#breaker = laneBreaker(bounds)
  }

  /** Nothing is under way, and nothing worth keeping is remembered. */
  get dormant(): boolean {
    const nowMs = this.#around.clock()
    const busy = this.#sessions.size + this.#opening + this.#waiting.line.length > 0
    return !busy && this.#breaker.state(nowMs) !== 'open' && this.#bucket.full(nowMs)
  }

  get status(): { sessions: number; idle: number; waiting: number; breakerOpen: boolean } {
    const { size, idle } = this.#sessions
    const breakerOpen = this.#breaker.state(this.#around.clock()) === 'open'
    return { sessions: size + this.#opening, idle, waiting: this.#waiting.line.length, breakerOpen }
  }

  /** A session could take one more recipient immediately. */
  get ready(): boolean {
    return this.#sessions.ready
  }

  /**
   * Asks about one recipient, and once more in a fresh session if a used session is no longer usable: asking changes nothing
   * at the server. Never rejects.
   */
  async ask(question: Question, signal: AbortSignal): Promise<LaneAnswer> {
    const refused = this.#closing ? null : this.#breaker.refuses(this.#around.clock())
    if (refused !== null) return { kind: 'open', ...refused }
    const first = await this.#askOnce(question, { fresh: false, signal })
    let { answer } = first
    if (first.used && isWornOut(answer)) {
      const again = await this.#askOnce(question, { fresh: true, signal })
      if (again.answer.kind === 'open') return answer
      answer = again.answer
      // The used session was connected.
      if (answer.kind === 'full' || answer.kind === 'deadline') answer = { kind: 'deadline', connected: true }
    }
    countAnswer(this.#breaker, question, answer, this.#around.clock())
    return answer
  }

  /** Another lane gave a place back. */
  placeFree(): void {
    this.#pump()
  }

  /** Ends one unused session, for the sake of another lane. */
  giveUpIdle(): boolean {
    return this.#sessions.retireIdle()
  }

  /** All callers stop waiting; sessions end once they are unused. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true
    this.#ended.abort()
    clearTimeout(this.#rateTimer)
    for (const { settle } of this.#waiting.line.splice(0)) settle({ kind: 'full' })
    for (const held of this.#sessions.all) this.#sessions.retire(held)
    const timer = setTimeout(() => {
      for (const { smtp } of this.#sessions.all) smtp.cut()
    }, graceMs)
    await Promise.all(this.#sessions.all.map(({ smtp }) => smtp.closed))
    clearTimeout(timer)
  }

  /** `used`: in a session that was used before. */
  async #askOnce(
    question: Question,
    { fresh, signal }: { fresh: boolean; signal: AbortSignal },
  ): Promise<{ answer: LaneAnswer; used: boolean }> {
    const given = await this.#session(question, { fresh, signal })
    if (given.kind !== 'session') return { answer: given, used: false }
    const { held, turn } = given
    const { smtputf8, own, background } = question
    if (smtputf8 && !held.smtp.smtputf8) {
      this.#release(held)
      return { answer: { kind: 'smtputf8_unsupported' }, used: false }
    }
    const askedAtMs = this.#around.clock()
    const asked = held.smtp.ask(question.mailbox, { smtputf8 }).then((answer): LaneAnswer => {
      this.#sessions.prompt = answer.kind === 'reply' && this.#around.clock() - askedAtMs < promptMsMax
      if (answer.kind === 'reply' && answer.reply.code >= 400) held.refusals++
      if (answer.kind === 'failure' || answer.stage !== 'rcpt') held.retired = true
      // Not in a used session, which may no longer be usable. A silent server is as useless as one that closes the connection.
      if (answer.kind === 'failure' && turn === 1 && !own)
        this.#breaker.fail(answer, this.#around.clock(), { background })
      this.#release(held)
      if (answer.kind === 'failure') return answer
      // If RSET fails, the session is no longer usable; a fresh session is never reset.
      return { ...answer, stage: answer.stage === 'reset' ? 'mail' : answer.stage }
    })
    return {
      answer: await within(asked, { signal }, () => ({ kind: 'deadline', connected: true }) as const),
      used: turn > 1,
    }
  }

  /** The session continues without a caller whose time is over: others use it, and its own deadlines end it. */
  #session(
    question: Question,
    { fresh, signal }: { fresh: boolean; signal: AbortSignal },
  ): Promise<Given | { kind: 'deadline'; connected: false | null }> {
    if (signal.aborted) return Promise.resolve({ kind: 'deadline', connected: null })
    if (this.#closing || this.#waiting.full(this.#bounds.waitingPerAddressMax, question.party))
      return Promise.resolve({ kind: 'full' })
    const late = () => ({ kind: 'deadline' as const, connected: this.#opening > 0 ? (false as const) : null })
    const given = this.#waiting.join(question, { fresh, signal, late })
    this.#pump()
    return given
  }

  #pump(): void {
    if (this.#closing) return
    const unserved: Waiter[] = []
    const before = this.#waiting.line
    this.#waiting.line = []
    for (const [index, waiter] of before.entries()) {
      const held = this.#sessions.best(waiter)
      if (held === null) {
        unserved.push(waiter)
        continue
      }
      const waitMs = this.#bucket.take(this.#around.clock())
      if (waitMs > 0) {
        clearTimeout(this.#rateTimer)
        this.#rateTimer = setTimeout(() => this.#pump(), waitMs)
        unserved.push(...before.slice(index))
        this.#waiting.line = unserved
        return
      }
      // Counted when it is handed out: several may be handed out before the first of them begins.
      waiter.settle({ kind: 'session', held, turn: this.#sessions.begin(held) })
    }
    this.#waiting.line = unserved
    this.#openFor(unserved)
  }

  #openFor(unserved: readonly Waiter[]): void {
    const [first] = unserved
    if (first === undefined) return
    if (this.#breaker.state(this.#around.clock()) === 'open') {
      this.#turnAway()
      return
    }
    while (this.#opening < unserved.length) {
      if (this.#sessions.size + this.#opening >= this.#sessionsMax()) {
        this.#sessions.retireUseless(first)
        return
      }
      if (!this.#around.takePlace(this)) return
      this.#opening++
      void this.#open(first.question.exchange)
    }
  }

  /** When the breaker lets no new session through, unless an open session may still serve the callers. */
  #turnAway(): void {
    if (this.#opening > 0 || this.#sessions.usable) return
    const refused = this.#breaker.refuses(this.#around.clock())
    if (refused === null) return
    for (const { settle } of this.#waiting.line.splice(0)) settle({ kind: 'open', ...refused })
  }

  #sessionsMax(): number {
    const few = this.#around.clock() < this.#fewSessions.untilMs
    const { sessionsPerAddressMax } = this.#bounds
    return few ? Math.min(this.#fewSessions.sessions, sessionsPerAddressMax) : sessionsPerAddressMax
  }

  async #open(exchange: string): Promise<void> {
    try {
      const plainOnly = this.#around.clock() < this.#plainUntilMs
      const session = { ...this.#around.session, exchange, address: this.#address, plainOnly }
      const smtp = await openSession(session, this.#ended.signal)
      if (smtp.tlsFailed) this.#plainUntilMs = this.#around.clock() + memoryMs
      this.#adopt(smtp)
    } catch (error) {
      this.#opening--
      this.#around.returnPlace()
      this.#failed(causeOf(error))
    }
    this.#pump()
  }

  #adopt(smtp: SmtpSession): void {
    this.#opening--
    this.#around.opened()
    const held = this.#sessions.add(smtp)
    void smtp.closed.then(() => {
      this.#sessions.remove(held)
      this.#around.returnPlace()
      // Over before anyone could use it: the opening failed, and without this we would open the next session immediately, forever.
      if (held.begun === 0 && !held.retired)
        this.#failed({ kind: 'failure', failure: new SmtpFailure('closed', 'no session for long') })
      this.#pump()
    })
    if (this.#closing) this.#sessions.retire(held)
    else this.#sessions.restAwhile(held)
  }

  /** One waiting caller gets the answer; the others try again, or learn that trying is useless. */
  #failed(cause: Cause): void {
    // One connection more than the server allows (Postfix: `smtpd_client_connection_count_limit`): the open sessions
    // serve the waiting callers.
    const isOneTooMany = cause.kind === 'reply' && cause.reply.code === 421
    if (isOneTooMany && this.#sessions.size + this.#opening > 0) {
      const untilMs = this.#around.clock() + memoryMs
      this.#fewSessions = { sessions: Math.max(this.#sessions.size, 1), untilMs }
      return
    }
    const background =
      this.#waiting.line.length > 0 && this.#waiting.line.every((one) => one.question.background)
    this.#breaker.fail(cause, this.#around.clock(), { background })
    this.#waiting.line.shift()?.settle(cause)
  }

  #release(held: Held): void {
    if (this.#closing) held.retired = true
    this.#sessions.end(held)
    this.#pump()
    if (held.underWay === 0 && !held.retired && this.#around.placeWanted()) this.#sessions.retire(held)
  }
}

/** A token bucket: a number per second, and a maximum burst. */
type TokenBucket = {
  /** Takes a token, or returns the milliseconds until the next one is available. */
  take(nowMs: number): number
  full(nowMs: number): boolean
}

export const createTokenBucket = ({
  perSecond,
  burst,
}: {
  perSecond: number
  burst: number
}): TokenBucket => {
  let tokens = burst
  let filledAtMs = Number.NEGATIVE_INFINITY
  const fill = (nowMs: number): void => {
    // A clock that is set back must not empty the bucket.
    const elapsedMs = Math.max(nowMs - filledAtMs, 0)
    tokens = Math.min(burst, tokens + (elapsedMs * perSecond) / 1_000)
    filledAtMs = nowMs
  }
  return {
    take: (nowMs) => {
      fill(nowMs)
      if (tokens < 1) return Math.ceil(((1 - tokens) * 1_000) / perSecond)
      tokens--
      return 0
    },
    full: (nowMs) => {
      fill(nowMs)
      return tokens >= burst
    },
  }
}

/** A caller waiting for a session. */
type Waiter = {
  readonly question: Question
  /** Only a session that was not used before: the previous session was used, and broke. */
  readonly fresh: boolean
  readonly settle: (given: Given) => void
}

type Given =
  /** `turn` is 1 for the first transaction of a session. */
  | { readonly kind: 'session'; readonly held: Held; readonly turn: number }
  | Exclude<LaneAnswer, { kind: 'deadline' }>

/** The callers waiting for a session at one address of a mail server, the next one first. Parties take turns. */
class Waiters {
  line: Waiter[] = []

  /** Whether one more caller of the party would be too many. A party with no caller waiting may always add one. */
  full(waitingMax: number, party: string): boolean {
    return this.line.length >= waitingMax && this.line.some(({ question }) => question.party === party)
  }

  /** Resolves with the waiter's result, or with `late()` when the caller's time is over. */
  join<Late>(
    question: Question,
    { fresh, signal, late }: { fresh: boolean; signal: AbortSignal; late: () => Late },
  ): Promise<Given | Late> {
    return new Promise((resolve) => {
      const leave = (): void => {
        this.line = this.line.filter((other) => other !== waiter)
        resolve(late())
      }
      const waiter: Waiter = {
        question,
        fresh,
        settle: (given) => {
          signal.removeEventListener('abort', leave)
          resolve(given)
        },
      }
      signal.addEventListener('abort', leave, { once: true })
      if (question.own || fresh) this.line.unshift(waiter)
      else this.line.splice(this.#turnOf(question.party), 0, waiter)
    })
  }

  /** Inserts after as many callers of each other party as this party has waiting: parties take turns, even if one has many callers. */
  #turnOf(party: string): number {
    const own = this.line.filter(({ question }) => question.party === party).length
    const before = new Map<string, number>()
    const index = this.line.findIndex(({ question }) => {
      const turn = before.get(question.party) ?? 0
      before.set(question.party, turn + 1)
      return turn > own
    })
    return index < 0 ? this.line.length : index
  }
}
