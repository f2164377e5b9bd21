import { createOutage, type OutageLogger } from '../event-log/outage.ts'
import { isLoopback } from './address.ts'
import type { Link, PeerAddress } from './link.ts'
import type { PassedByFor } from './owners.ts'
import { createPassing, type Passing, type PassingLimits, passingLimits } from './passing.ts'
import type { Peer, ProcessId } from './peer.ts'
import { addressText, type ProcessRow } from './processes-table.ts'

export type LinkState = { readonly connected: boolean; readonly passedBy: boolean }

export type LinksLimits = PassingLimits & {
  /** Connections and attempts: more processes do not work together. */
  readonly linksMax: number
  /** Attempts at a time: each costs some milliseconds, and a table may be full of addresses that lead nowhere. */
  readonly attemptsMax: number
  /** An attempt that takes longer leaves its place to an address that was not tried. */
  readonly attemptMs: number
  /** A process whose row is missing counts for so long: someone may have emptied the table. */
  readonly absentMs: number
  /** Then its connection ends, if it has not ended by itself. */
  readonly abandonedMs: number
}

export const linksLimits: LinksLimits = {
  ...passingLimits,
  linksMax: 64,
  attemptsMax: 16,
  attemptMs: 1_000,
  absentMs: 3_000,
  abandonedMs: 60_000,
}

type LinksOptions = {
  readonly self: ProcessId
  /** The name of this machine. */
  readonly host: string
  readonly dial: (options: { peer: ProcessId; address: PeerAddress }) => Link
  readonly logger: OutageLogger
  /** What `usable` answers may have changed. */
  readonly changed: () => void
  /** A connection went. */
  readonly lost: () => void
  readonly limits: LinksLimits
}

type Entry = {
  readonly link: Link
  readonly address: string
  readonly dialledMs: number
  /** When the table was first seen without it. */
  absentMs: number | null
}

type Candidate = { readonly id: ProcessId; readonly address: PeerAddress }

/**
 * The connections to the processes that the table names. The table says which addresses to try; that a process is there is
 * known from its connection, which proves who it is. So an address that leads nowhere costs an attempt now and then, and
 * neither becomes an owner nor delays a call.
 */
export class Links {
  readonly #options: LinksOptions
  readonly #entries = new Map<ProcessId, Entry>()
  readonly #passing: Passing
  /** When an attempt failed: others come first. */
  readonly #failedMs = new Map<ProcessId, number>()
  readonly #outOfReach: ReturnType<typeof createOutage>
  readonly #whenSettled: (() => void)[] = []
  #closed = false

  constructor(options: LinksOptions) {
    this.#options = options
    this.#passing = createPassing(options.logger, () => this.#changed(), options.limits)
    this.#outOfReach = createOutage({ logger: options.logger, what: 'peers: reaching a process' })
  }

  /** Takes what the table says now: who lives, last heard first. */
  see(live: readonly ProcessRow[]): void {
    if (this.#closed) return
    const { self } = this.#options
    const rows = new Map(
      live.filter(({ id, roles }) => id !== self && roles.includes('api')).map((row) => [row.id, row]),
    )
    this.#keepNamed(rows)
    const waiting = [...rows.values()].flatMap((row) => this.#candidate(row))
    this.#endAttempts(waiting.length)
    // A stable sort: among equals the last heard stay first.
    waiting.sort((a, b) => (this.#failedMs.get(a.id) ?? 0) - (this.#failedMs.get(b.id) ?? 0))
    for (const one of waiting.slice(0, this.#free())) this.#open(one)
    this.#changed()
  }

  /** Connected, proved, staying, named by the table lately, and not passed by. */
  usable(): readonly Peer[] {
    const { absentMs: graceMs } = this.#options.limits
    const nowMs = performance.now()
    return [...this.#entries.values()].flatMap(({ link, absentMs }) => {
      const isNamed = absentMs === null || nowMs - absentMs < graceMs
      return link.ready() && isNamed && !this.#passing.has(link.id) ? [link] : []
    })
  }

  /** Leaves one out for a while. */
  passBy(id: ProcessId, why: PassedByFor): void {
    if (this.#entries.get(id)?.link.ready() !== true) return
    this.#passing.add(id, why)
    this.#changed()
  }

  stateOf(id: ProcessId): LinkState {
    return { connected: this.#entries.get(id)?.link.ready() === true, passedBy: this.#passing.has(id) }
  }

  /** How many connections there are. */
  connected(): number {
    return [...this.#entries.values()].filter(({ link }) => link.ready()).length
  }

  /** Resolves when no attempt is under way that may still give a connection soon. */
  settled(): Promise<void> {
    if (this.#isSettled()) return Promise.resolve()
    return new Promise((resolve) => this.#whenSettled.push(resolve))
  }

  /** Lets go of all. */
  async close(): Promise<void> {
    this.#closed = true
    this.#passing.end()
    const links = [...this.#entries.values()].map(({ link }) => link)
    this.#entries.clear()
    this.#changed()
    await Promise.all(links.map((link) => link.close()))
  }

  #changed(): void {
    this.#options.changed()
    if (this.#whenSettled.length > 0 && this.#isSettled())
      for (const resolve of this.#whenSettled.splice(0)) resolve()
  }

  #isSettled(): boolean {
    const begunMs = performance.now() - this.#options.limits.attemptMs
    return [...this.#entries.values()].every(
      ({ link, dialledMs }) => link.ready() || link.tried() || dialledMs <= begunMs,
    )
  }

  /** Ends the connections to other addresses than before, and to those that are gone. */
  #keepNamed(rows: ReadonlyMap<ProcessId, ProcessRow>): void {
    const nowMs = performance.now()
    for (const [id, entry] of this.#entries) {
      const address = rows.get(id)?.address ?? null
      if (address === null) {
        entry.absentMs ??= nowMs
        if (!entry.link.ready() || nowMs - entry.absentMs >= this.#options.limits.abandonedMs) this.#drop(id)
      } else if (addressText(address) === entry.address) entry.absentMs = null
      else this.#drop(id)
    }
    for (const id of this.#failedMs.keys()) if (!rows.has(id)) this.#failedMs.delete(id)
    this.#passing.keep(rows)
  }

  /** None where it is connected or dialled already, does not listen, or listens for its own machine only. */
  #candidate({ id, address, host }: ProcessRow): Candidate[] {
    if (address === null || this.#entries.has(id)) return []
    if (host === this.#options.host || !isLoopback(address.host)) return [{ id, address }]
    const where = `${id} on ${host} listens on ${addressText(address)}, which leads to this machine`
    this.#outOfReach.failed(new Error(`${where}: set PEER_HOST there`))
    return []
  }

  /** How many more may be dialled now. */
  #free(): number {
    const { linksMax, attemptsMax } = this.#options.limits
    const attempts = this.#entries.size - this.connected()
    return Math.max(0, Math.min(linksMax - this.#entries.size, attemptsMax - attempts))
  }

  /** Ends attempts that take too long, where others wait for their place. */
  #endAttempts(waiting: number): void {
    const { attemptMs } = this.#options.limits
    const nowMs = performance.now()
    for (const [id, { link, dialledMs }] of this.#entries) {
      if (link.ready() || (!link.tried() && nowMs - dialledMs < attemptMs)) continue
      this.#failedMs.set(id, nowMs)
      if (waiting > this.#free()) this.#drop(id)
    }
  }

  #open({ id, address }: Candidate): void {
    const link = this.#options.dial({ peer: id, address })
    const entry = { link, address: addressText(address), dialledMs: performance.now(), absentMs: null }
    this.#entries.set(id, entry)
    let wasReady = false
    link.onChange(() => {
      const isLost = wasReady && !link.ready()
      wasReady = link.ready()
      if (wasReady) this.#failedMs.delete(id)
      this.#changed()
      // Not for one that was let go of.
      if (isLost && this.#entries.has(id)) this.#options.lost()
    })
  }

  #drop(id: ProcessId): void {
    const entry = this.#entries.get(id)
    this.#entries.delete(id)
    void entry?.link.close()
  }
}
