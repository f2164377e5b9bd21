import { within } from '../concurrency/deadline.ts'
import { createOutage, type OutageLogger } from '../event-log/outage.ts'
import { createBeats } from './beats.ts'
import type { PeerAddress } from './link.ts'
import type { Listening } from './listening.ts'
import { createRate, ownersAgreed, ownersWanted } from './owners-wanted.ts'
import type { Party, PartyContext } from './party.ts'
import type { ProcessId } from './peer.ts'
import {
  deleteProcess,
  liveProcesses,
  type OwnWork,
  type ProcessRow,
  writeHeartbeat,
} from './processes-table.ts'

/**
 * A process that owns its share. It counts itself only while it can be reached: one that listens nowhere, or where others
 * do not get through, would own ledgers in its own eyes alone.
 */
export type Member = Party & {
  /** Another has connected, maybe one that it does not know yet. */
  reached(): void
  /** As of `Peers`. */
  join(): Promise<void>
  leave(): Promise<void>
  close(): Promise<void>
  /** Its own row; null while it has none. */
  row(): ProcessRow | null
}

export const createMember = (context: PartyContext, listening: Listening): Member => {
  const { own, pool, ownership, links, known, limits } = context
  const ownRow = createOwnRow(context)
  const unreached = createUnreached(context)
  const tell = createTelling(context.logger)
  let state: 'joining' | 'joined' | 'leaving' = 'joining'
  let othersLive = 0
  let owners = limits.ownersMin

  const isReached = (): boolean => links.connected() === 0 || listening.connections() > 0
  const isOwner = (): boolean =>
    state === 'joined' && ownRow.isMine() && (othersLive === 0 || listening.address() !== null) && isReached()
  const changed = (): void => {
    const among = [...(isOwner() ? [null] : []), ...links.usable()]
    const ids = among.map((peer) => peer?.id ?? own.id)
    owners = ownersAgreed(ids, [{ id: own.id, owners: ownRow.owners() }, ...known.rows()], owners)
    if (ownership.share(among, owners) && state === 'joined') tell(ids)
  }
  const beat = async (): Promise<void> => {
    let rows = await ownRow.write(listening.address(), owners)
    if (state === 'leaving') return
    if (rows !== null) othersLive = apiProcesses(rows).length
    // Before it dials: those that it connects to look for its address at once.
    if (await listening.want(othersLive > 0 || links.connected() > 0))
      rows = (await ownRow.write(listening.address(), owners)) ?? rows
    if (rows !== null) {
      if (known.saw(rows)) beats.hurry()
      links.see(rows)
    }
    unreached.look(isReached())
    changed()
  }
  const beats = createBeats(beat, limits)

  return {
    opening: () => null,
    others: () => listening.address() !== null || links.connected() > 0,
    changed,
    lost: () => void beats.next(),
    reached: () => {
      changed()
      void beats.next()
    },
    join: async () => {
      const before = await liveProcesses(pool).catch(() => [])
      // Here a taken port may stop the start; the first heartbeat would only tell it.
      if (apiProcesses(before).length > 0) await listening.open()
      await beats.next()
      await within(links.settled(), { waitMs: limits.openingMs }, () => undefined)
      if (state === 'joining') state = 'joined'
      changed()
    },
    leave: async () => {
      if (state === 'leaving') return
      state = 'leaving'
      changed()
      // The row goes first, so that who hears of it finds no one to dial. Where that takes long it ends with its last heartbeat.
      const gone = beats.end().then(ownRow.remove)
      await within(gone, { waitMs: limits.leavingMs }, () => undefined)
      listening.tellLeaving()
    },
    close: listening.close,
    row: () => ownRow.row(listening.address()),
  }
}

/** The row of this process. */
const createOwnRow = ({ own, pool, table, logger, known, written, limits }: PartyContext) => {
  const rate = createRate()
  let work: OwnWork = { written: 0, owners: limits.ownersMin }
  let mine = true
  let writtenMs: number | null = null
  return {
    /** How many processes it finds should write. */
    owners: (): number => work.owners,
    /** `writing` do now. Gives the rows of the others; null where the database does not answer. Never rejects. */
    write: async (address: PeerAddress | null, writing: number): Promise<readonly ProcessRow[] | null> => {
      const ownRate = rate(written(), performance.now())
      const all = known.rows().reduce((sum, row) => sum + row.written, ownRate)
      work = { written: ownRate, owners: ownersWanted(writing, all, limits) }
      try {
        const told = await writeHeartbeat(pool, own, { ...work, address })
        table.works()
        writtenMs = performance.now()
        if (mine && !told.mine)
          logger.error(
            { process: own.id },
            'peers: another process has the same id, so this one owns nothing',
          )
        mine = told.mine
        return told.others
      } catch (error) {
        table.failed(error)
        return null
      }
    },
    /** False while another process has it. */
    isMine: (): boolean => mine,
    /** Null while it was not written. */
    row: (address: PeerAddress | null): ProcessRow | null =>
      writtenMs === null
        ? null
        : { ...own, ...work, address, ageMs: performance.now() - writtenMs, clockAheadMs: null },
    /** Never rejects: without it the row ends with its last heartbeat. */
    remove: async (): Promise<void> => {
      writtenMs = null
      await deleteProcess(pool, own).catch(() => undefined)
    },
  }
}

/** Says who shares the ledgers. A process that was alone from its start on says nothing. */
const createTelling = (logger: OutageLogger): ((processes: readonly ProcessId[]) => void) => {
  let told = 1
  return (processes) => {
    const count = processes.length
    if (count === 0 || (count === 1 && told === 1)) return
    told = count
    logger.info(
      { processes },
      `peers: now ${count} ${count === 1 ? 'process shares' : 'processes share'} the ledgers`,
    )
  }
}

const apiProcesses = (rows: readonly ProcessRow[]): ProcessRow[] =>
  rows.filter(({ roles }) => roles.includes('api'))

/** Says that none of those that this process reaches has reached it for long: a firewall, or an address that leads elsewhere. */
const createUnreached = ({ limits, logger }: PartyContext): { look(isReached: boolean): void } => {
  const outage = createOutage({ logger, what: 'peers: being reached at PEER_HOST and PEER_PORT' })
  let sinceMs: number | null = null
  return {
    look: (isReached) => {
      const nowMs = performance.now()
      if (isReached) {
        outage.works()
        sinceMs = null
        return
      }
      sinceMs ??= nowMs
      if (nowMs - sinceMs < limits.unreachedMs) return
      outage.failed(
        new Error('this process reaches others, and none of them reaches it: it owns nothing meanwhile'),
      )
    },
  }
}
