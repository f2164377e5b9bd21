/** The lanes of all addresses (see `lane.ts`), with a common limit on their sessions. */
import { type LaneSurroundings, MailboxLane } from './lane.ts'
import type { LaneBounds } from './lane-answer.ts'

export type PoolBounds = LaneBounds & {
  readonly sessionsMax: number
  /**
   * The maximum number of addresses in memory. There can be more, because addresses in use are never removed, but the checks and sessions in
   * progress limit their number.
   */
  readonly addressesMax: number
}

export type PoolStatus = {
  readonly addresses: number
  readonly sessions: number
  readonly waiting: number
  readonly breakersOpen: number
  readonly sessionsOpened: number
}

/** The time in which sessions can send QUIT when the process ends. */
const closeGraceMs = 1_000

export class MailboxPool {
  readonly #bounds: PoolBounds
  readonly #around: LaneSurroundings
  /** In order of their latest use. */
  readonly #lanes = new Map<string, MailboxLane>()
  readonly #wanting = new Set<MailboxLane>()
  #places = 0
  #sessionsOpened = 0

  constructor(bounds: PoolBounds, around: Pick<LaneSurroundings, 'clock' | 'session'>) {
    this.#bounds = bounds
    this.#around = {
      ...around,
      takePlace: (lane) => this.#takePlace(lane),
      returnPlace: () => this.#returnPlace(),
      placeWanted: () => this.#wanting.size > 0,
      opened: () => this.#sessionsOpened++,
    }
  }

  /** Returns the lane of an address. Sessions are found only by address, so that a session is never used for another address. */
  lane(address: string): MailboxLane {
    const known = this.#lanes.get(address)
    const lane = known ?? new MailboxLane(address, this.#bounds, this.#around)
    if (known === undefined) this.#forgetOne()
    else this.#lanes.delete(address)
    this.#lanes.set(address, lane)
    return lane
  }

  inOrder(addresses: readonly string[]): string[] {
    const ready = addresses.filter((address) => this.#lanes.get(address)?.ready === true)
    return [...ready, ...addresses.filter((address) => !ready.includes(address))]
  }

  status(): PoolStatus {
    const lanes = [...this.#lanes.values()].map(({ status }) => status)
    return {
      addresses: lanes.length,
      sessions: this.#places,
      waiting: lanes.reduce((total, { waiting }) => total + waiting, 0),
      breakersOpen: lanes.filter(({ breakerOpen }) => breakerOpen).length,
      sessionsOpened: this.#sessionsOpened,
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map((lane) => lane.close(closeGraceMs)))
  }

  #takePlace(lane: MailboxLane): boolean {
    if (this.#places < this.#bounds.sessionsMax) {
      this.#places++
      return true
    }
    this.#wanting.add(lane)
    for (const other of this.#lanes.values()) if (other !== lane && other.giveUpIdle()) break
    return false
  }

  #returnPlace(): void {
    this.#places--
    // The lane that waited for a session may no longer need it, so the next lane is also notified.
    while (this.#places < this.#bounds.sessionsMax) {
      const [next] = this.#wanting
      if (next === undefined) return
      this.#wanting.delete(next)
      next.placeFree()
    }
  }

  #forgetOne(): void {
    if (this.#lanes.size < this.#bounds.addressesMax) return
    for (const [address, lane] of this.#lanes) {
      if (!lane.dormant) continue
      this.#lanes.delete(address)
      return
    }
  }
}
