import type { SmtpSession } from '../smtp/session.ts'
import type { LaneBounds } from './lane-answer.ts'

export type Held = {
  readonly smtp: SmtpSession
  begun: number
  underWay: number
  refusals: number
  /** The session starts no more transactions, and ends when none is under way. */
  retired: boolean
  idleTimer: NodeJS.Timeout | undefined
}

/** The open sessions at one address of a mail server. */
export class HeldSessions {
  readonly #bounds: LaneBounds
  readonly #all = new Set<Held>()
  /** Whether the latest answer came so quickly that pipelined questions do not delay each other much. False before the first answer. */
  prompt = false

  constructor(bounds: LaneBounds) {
    this.#bounds = bounds
  }

  get all(): readonly Held[] {
    return [...this.#all]
  }

  get size(): number {
    return this.#all.size
  }

  get idle(): number {
    return this.all.filter(({ underWay }) => underWay === 0).length
  }

  get ready(): boolean {
    return this.all.some((held) => this.#hasRoom(held))
  }

  /** Whether a session can serve a caller, now or later. */
  get usable(): boolean {
    return this.all.some(({ smtp, retired }) => smtp.usable() && !retired)
  }

  add(smtp: SmtpSession): Held {
    const held = { smtp, begun: 0, underWay: 0, refusals: 0, retired: false, idleTimer: undefined }
    this.#all.add(held)
    return held
  }

  remove(held: Held): void {
    clearTimeout(held.idleTimer)
    this.#all.delete(held)
  }

  best({ fresh }: { fresh: boolean }): Held | null {
    let best: Held | null = null
    for (const held of this.#all) {
      if (!this.#hasRoom(held) || (fresh && held.begun > 0)) continue
      if (best === null || held.underWay < best.underWay) best = held
    }
    return best
  }

  begin(held: Held): number {
    clearTimeout(held.idleTimer)
    held.underWay++
    return ++held.begun
  }

  /** Ends a transaction. Its session then waits for the next one, or ends if it has reached a limit. */
  end(held: Held): void {
    held.underWay--
    // A session that can be asked about only a few more recipients at a time is not worth keeping.
    const { refusalsPerSessionMax } = this.#bounds
    const worth = Math.min(this.#atOnceMax(held), refusalsPerSessionMax) / 2
    if (refusalsPerSessionMax - held.refusals < worth) held.retired = true
    if (held.begun >= this.#bounds.transactionsPerSessionMax) held.retired = true
    if (held.retired) this.retire(held)
    else if (held.underWay === 0) this.restAwhile(held)
  }

  restAwhile(held: Held): void {
    clearTimeout(held.idleTimer)
    held.idleTimer = setTimeout(() => this.retire(held), this.#bounds.sessionIdleMs)
  }

  retire(held: Held): void {
    held.retired = true
    clearTimeout(held.idleTimer)
    if (held.underWay === 0) held.smtp.quit()
  }

  retireIdle(): boolean {
    const idle = this.all.find(({ underWay, retired }) => underWay === 0 && !retired)
    if (idle !== undefined) this.retire(idle)
    return idle !== undefined
  }

  /** Ends one idle session that cannot serve the waiting caller, to make room for a new session. */
  retireUseless({ fresh }: { fresh: boolean }): void {
    const useless = this.all.find(
      (held) =>
        (fresh || !this.#hasRoom(held)) &&
        // A broken session is removed soon anyway.
        held.underWay === 0 &&
        !held.retired &&
        held.smtp.usable(),
    )
    if (useless !== undefined) this.retire(useless)
  }

  #hasRoom(held: Held): boolean {
    if (held.retired || !held.smtp.usable()) return false
    if (held.begun >= this.#bounds.transactionsPerSessionMax) return false
    // Each transaction under way counts as a possible refusal.
    const refusalsLeft = this.#bounds.refusalsPerSessionMax - held.refusals
    return held.underWay < Math.min(this.#atOnceMax(held), refusalsLeft)
  }

  #atOnceMax({ smtp }: Held): number {
    return this.prompt && smtp.pipelining ? this.#bounds.checksPerSessionAtOnceMax : 1
  }
}
