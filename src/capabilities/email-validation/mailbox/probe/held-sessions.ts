import type { SmtpSession } from '../smtp/session.ts'
import type { LaneBounds } from './lane-answer.ts'

export type Held = {
  readonly smtp: SmtpSession
  /** The number of transactions that have begun. */
  begun: number
  busy: boolean
  refusals: number
  /** Whether the session has been retired: it starts no more transactions, and ends when it is not busy. */
  retired: boolean
  idleTimer: NodeJS.Timeout | undefined
}

const isFree = ({ smtp, busy, retired }: Held): boolean => !busy && !retired && smtp.usable()

/** The open sessions at one address of a mail server. */
export class HeldSessions {
  readonly #bounds: LaneBounds
  readonly #all = new Set<Held>()

  constructor(bounds: LaneBounds) {
    this.#bounds = bounds
  }

  get all(): readonly Held[] {
    return [...this.#all]
  }

  get size(): number {
    return this.#all.size
  }

  get ready(): boolean {
    return this.all.some(isFree)
  }

  /** Whether a session can serve a caller, now or later. */
  get usable(): boolean {
    return this.all.some(({ smtp, retired }) => smtp.usable() && !retired)
  }

  add(smtp: SmtpSession): Held {
    const held = { smtp, begun: 0, busy: false, refusals: 0, retired: false, idleTimer: undefined }
    this.#all.add(held)
    return held
  }

  remove(held: Held): void {
    clearTimeout(held.idleTimer)
    this.#all.delete(held)
  }

  free({ fresh }: { fresh: boolean }): Held | null {
    return this.all.find((held) => isFree(held) && !(fresh && held.begun > 0)) ?? null
  }

  begin(held: Held): number {
    clearTimeout(held.idleTimer)
    held.busy = true
    return ++held.begun
  }

  /** Ends a transaction. Its session then waits for the next one, or ends if it has reached a limit. */
  end(held: Held): void {
    held.busy = false
    const { refusalsPerSessionMax, transactionsPerSessionMax } = this.#bounds
    const wornOut = held.refusals >= refusalsPerSessionMax || held.begun >= transactionsPerSessionMax
    if (held.retired || wornOut) this.retire(held)
    else this.restAwhile(held)
  }

  restAwhile(held: Held): void {
    clearTimeout(held.idleTimer)
    held.idleTimer = setTimeout(() => this.retire(held), this.#bounds.sessionIdleMs)
  }

  retire(held: Held): void {
    held.retired = true
    clearTimeout(held.idleTimer)
    if (!held.busy) held.smtp.quit()
  }

  /** Ends one idle session; returns false if there is none. */
  retireIdle(): boolean {
    const idle = this.all.find(isFree)
    if (idle !== undefined) this.retire(idle)
    return idle !== undefined
  }
}
