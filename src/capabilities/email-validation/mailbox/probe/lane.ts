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
 * A lane is all state for one address of a mail server: sessions, rate limit, queue and circuit breaker. Providers count our traffic per
 * address.
 */

export type LaneSurroundings = {
  readonly clock: () => number
  readonly session: Omit<SessionOptions, 'exchange' | 'address'>
  /** Reserves one of the process's sessions; false if none is free. */
  readonly takePlace: (lane: MailboxLane) => boolean
  readonly returnPlace: () => void
  /** Whether a lane is waiting for a session. An idle session must then end. */
  readonly placeWanted: () => boolean
  readonly opened: () => void
}

/** The time for which the reduced number of sessions applies after a server has refused a session. */
const fewSessionsMs = 600_000

/** A server that refuses a session this soon after our last one ended may still count the last one, so we connect again. */
const countedAfterEndMs = 3_000
/** The limit is a number of attempts instead of a time, because a slow server also takes long to refuse. */
const connectAgainMax = 5

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
  /** While it runs, no session is opened. */
  #connectAgain: NodeJS.Timeout | undefined
  #lastEndedMs = Number.NEGATIVE_INFINITY
  /** The number of times in a row that the server refused a session and we connected again. */
  #connectedAgain = 0
  #closing = false
  /**
   * After a server refuses a session, we open at most as many sessions as it had accepted. Otherwise, it would immediately refuse another
   * session.
   */
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

  /** Whether nothing is in progress and no state has to be kept. */
  get dormant(): boolean {
    const nowMs = this.#around.clock()
    const busy = this.#sessions.size + this.#opening + this.#waiting.line.length > 0
    return !busy && this.#breaker.state(nowMs) !== 'open' && this.#bucket.full(nowMs)
  }

  get status(): { waiting: number; breakerOpen: boolean } {
    const breakerOpen = this.#breaker.state(this.#around.clock()) === 'open'
    return { waiting: this.#waiting.line.length, breakerOpen }
  }

  get ready(): boolean {
    return this.#sessions.ready
  }

  /** Asks about one recipient, and asks again in a new session if a used session no longer works. Never rejects. */
  async ask(question: Question, signal: AbortSignal): Promise<LaneAnswer> {
    const refused = this.#closing ? null : this.#breaker.refuses(this.#around.clock())
    if (refused !== null) return { kind: 'open', ...refused }
    const first = await this.#askOnce(question, { fresh: false, signal })
    let { answer } = first
    if (first.used && isWornOut(answer)) {
      const again = await this.#askOnce(question, { fresh: true, signal })
      if (again.answer.kind === 'open') return answer
      answer = again.answer
      // The used session was connected, even if the new one was not.
      if (answer.kind === 'full' || answer.kind === 'deadline') answer = { kind: 'deadline', connected: true }
    }
    countAnswer(this.#breaker, question, answer, this.#around.clock())
    return answer
  }

  placeFree(): void {
    this.#pump()
  }

  /** Ends one idle session so that another lane can open one; returns false if there is none. */
  giveUpIdle(): boolean {
    return this.#sessions.retireIdle()
  }

  /** Answers the waiting callers. Ends each session when it is idle, or after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true
    this.#ended.abort()
    clearTimeout(this.#rateTimer)
    clearTimeout(this.#connectAgain)
    for (const { settle } of this.#waiting.line.splice(0)) settle({ kind: 'full' })
    for (const held of this.#sessions.all) this.#sessions.retire(held)
    const timer = setTimeout(() => {
      for (const { smtp } of this.#sessions.all) smtp.cut()
    }, graceMs)
    await Promise.all(this.#sessions.all.map(({ smtp }) => smtp.closed))
    clearTimeout(timer)
  }

  /** `used` is true if the session has already answered another question. */
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
    const asked = held.smtp.ask(question.mailbox, { smtputf8 }).then((answer): LaneAnswer => {
      if (answer.kind === 'reply' && answer.reply.code >= 400) held.refusals++
      if (answer.kind === 'failure' || answer.stage !== 'rcpt') held.retired = true
      // A failure in a used session is not counted, because the session may simply have expired.
      if (answer.kind === 'failure' && turn === 1 && !own)
        this.#breaker.fail(answer, this.#around.clock(), { background })
      this.#release(held)
      if (answer.kind === 'failure') return answer
      // If RSET fails, the session is no longer usable. A new session is never reset.
      return { ...answer, stage: answer.stage === 'reset' ? 'mail' : answer.stage }
    })
    return {
      answer: await within(asked, { signal }, () => ({ kind: 'deadline', connected: true }) as const),
      used: turn > 1,
    }
  }

  /** If the caller's time limit passes, the session stays open for other callers. */
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
      const held = this.#sessions.free(waiter)
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
    if (this.#connectAgain !== undefined) return
    while (this.#opening < unserved.length) {
      if (this.#sessions.size + this.#opening >= this.#sessionsMax()) {
        // An idle session cannot serve a caller that needs a new one, so the idle session ends.
        if (first.fresh) this.#sessions.retireIdle()
        return
      }
      if (!this.#around.takePlace(this)) return
      this.#opening++
      void this.#open(first.question.exchange)
    }
  }

  /** Answers the waiting callers if the circuit breaker is open, unless an open session can still serve them. */
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
      const session = { ...this.#around.session, exchange, address: this.#address }
      this.#adopt(await openSession(session, this.#ended.signal))
    } catch (error) {
      this.#opening--
      this.#around.returnPlace()
      this.#failed(causeOf(error))
    }
    this.#pump()
  }

  #adopt(smtp: SmtpSession): void {
    this.#opening--
    this.#connectedAgain = 0
    this.#around.opened()
    const held = this.#sessions.add(smtp)
    void smtp.closed.then(() => {
      this.#sessions.remove(held)
      this.#lastEndedMs = this.#around.clock()
      this.#around.returnPlace()
      // A session that ends unused counts as a failed opening. Otherwise, sessions would be opened again and again.
      if (held.begun === 0 && !held.retired)
        this.#failed({ kind: 'failure', failure: new SmtpFailure('closed', 'the session ended unused') })
      this.#pump()
    })
    if (this.#closing) this.#sessions.retire(held)
    else this.#sessions.restAwhile(held)
  }

  /** One waiting caller gets the failure. All others wait for the next attempt, or are answered once the circuit breaker is open. */
  #failed(cause: Cause): void {
    // The server allows no more connections (Postfix: `smtpd_client_connection_count_limit`). The open sessions serve the waiting callers.
    // If there is none, the server may still count one that has just ended.
    if (cause.kind === 'reply' && cause.reply.code === 421) {
      const nowMs = this.#around.clock()
      const open = this.#sessions.size + this.#opening
      if (open > 0 || this.#mayStillCount(nowMs)) {
        this.#fewSessions = { sessions: Math.max(this.#sessions.size, 1), untilMs: nowMs + fewSessionsMs }
        if (open === 0) this.#connectLater()
        return
      }
    }
    const background =
      this.#waiting.line.length > 0 && this.#waiting.line.every((one) => one.question.background)
    this.#breaker.fail(cause, this.#around.clock(), { background })
    this.#waiting.line.shift()?.settle(cause)
  }

  /** Whether the server may still count a session that it has closed. */
  #mayStillCount(nowMs: number): boolean {
    if (this.#connectedAgain > 0) return this.#connectedAgain < connectAgainMax
    return nowMs - this.#lastEndedMs < countedAfterEndMs
  }

  #connectLater(): void {
    if (this.#closing || this.#connectAgain !== undefined) return
    this.#connectedAgain++
    this.#connectAgain = setTimeout(() => {
      this.#connectAgain = undefined
      if (this.#waiting.line.length === 0) this.#connectedAgain = 0
      this.#pump()
    }, this.#bounds.connectAgainMs)
  }

  #release(held: Held): void {
    if (this.#closing) held.retired = true
    this.#sessions.end(held)
    this.#pump()
    if (!held.busy && !held.retired && this.#around.placeWanted()) this.#sessions.retire(held)
  }
}

type TokenBucket = {
  /** Takes a token, or returns the milliseconds until the next token is available. */
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
    // The token bucket must not become empty if the clock is set back.
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

type Waiter = {
  readonly question: Question
  /** True if the caller needs an unused session, because its previous session had already been used when it failed. */
  readonly fresh: boolean
  readonly settle: (given: Given) => void
}

type Given =
  | { readonly kind: 'session'; readonly held: Held; readonly turn: number }
  | Exclude<LaneAnswer, { kind: 'deadline' }>

/** The callers that wait for a session, the next one first. Parties (organizations) take turns. */
class Waiters {
  line: Waiter[] = []

  /** Whether another caller of the party would be too many. A party without waiting callers can always add one. */
  full(waitingMax: number, party: string): boolean {
    return this.line.length >= waitingMax && this.line.some(({ question }) => question.party === party)
  }

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

  /** The position of the party's next caller in the queue. Parties take turns, even if one has many callers. */
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
