import { hostname } from 'node:os'
import pg from 'pg'
import { ulid } from 'ulid'
import type { Config } from '../config.ts'
import { createOutage, type OutageLogger } from '../event-log/outage.ts'
import { peerHostOf } from './address.ts'
import { createKnown } from './known.ts'
import { openLink } from './link.ts'
import { type LinkState, Links } from './links.ts'
import { openPeerListener } from './listener.ts'
import { createListening } from './listening.ts'
import { createMember, type Member } from './member.ts'
import { sharedLogger } from './notice.ts'
import { noOwners, type Owners } from './owners.ts'
import { createOwnership } from './ownership.ts'
import { type Party, type PartyContext, type PeersLimits, peersLimits } from './party.ts'
import type { AnswerPeer, ProcessId } from './peer.ts'
import type { OwnProcess, ProcessRow } from './processes-table.ts'
import type { PeerKey } from './proof.ts'
import { createVisitor } from './visitor.ts'

/**
 * Who lives, and who is to write which organization's ledger.
 *
 * A process begins as a visitor: it sends its commands to their owners and owns nothing, as the command line and the jobs
 * do. It looks at the table of processes when it is used, and has no timer. One that serves the API joins once its hosts
 * answer: it writes its row every second, listens while another such process lives, and owns its share.
 *
 * While the database is away the last known processes stay: their connections prove that they live.
 */
export type Peers = Owners & {
  /** Makes a member of this process, once. Throws `ConfigError` where another lives and PEER_HOST or PEER_PORT cannot be had. */
  join(answer: AnswerPeer): Promise<void>
  /** No owner from now on, and nothing new comes; what is under way goes on. Never rejects. */
  leave(): Promise<void>
  /** Ends connections, the port, and the connection to the database. */
  close(): Promise<void>
  /** This process, where it is a member, and those it knows. */
  processes(): readonly KnownProcess[]
}

export type KnownProcess = ProcessRow & LinkState & { readonly own: boolean }

/** What connects processes; tests put another in its place. */
export type Transport = {
  readonly openLink: typeof openLink
  readonly openPeerListener: typeof openPeerListener
}

export type PeersOptions = {
  readonly url: string
  readonly config: Pick<Config, 'PEER_HOST' | 'PEER_PORT' | 'REDIS_URL' | 'ROLES'>
  /** What processes prove themselves with: derived from the SECRET_KEY in use. */
  readonly key: PeerKey
  readonly logger: OutageLogger
  /** How many commands this process has written into ledgers so far. */
  readonly written?: () => number
  readonly limits?: Partial<PeersLimits>
  /** Default: a ULID of its own. */
  readonly id?: ProcessId
  /** The name of the machine. Default: this one's. */
  readonly host?: string
  readonly transport?: Transport
}

/** Where processes are kept from knowing each other (`LEDGER_OWNERS=off`). */
export const noPeers: Peers = {
  ...noOwners,
  join: async () => undefined,
  leave: async () => undefined,
  close: async () => undefined,
  processes: () => [],
}

/** A visitor's connection to the database is given back after so long. */
const idleConnectionMs = 10_000
const hostLengthMax = 255

const openPool = (url: string, statementMs: number): pg.Pool => {
  const pool = new pg.Pool({
    connectionString: url,
    max: 1,
    connectionTimeoutMillis: statementMs,
    query_timeout: statementMs,
    idleTimeoutMillis: idleConnectionMs,
    allowExitOnIdle: true,
    application_name: 'peers',
  })
  // The next statement fails as well, and that is told.
  pool.on('error', () => undefined)
  return pool
}

/** Opens nothing before it is used. */
export const openPeers = (options: PeersOptions): Peers => {
  const { url, config, key, logger, transport = { openLink, openPeerListener } } = options
  const limits = { ...peersLimits, ...options.limits }
  const id = options.id ?? ulid()
  const own: OwnProcess = {
    id,
    counters: config.REDIS_URL === undefined ? id : 'redis',
    roles: config.ROLES,
    host: (options.host ?? hostname()).slice(0, hostLengthMax),
    pid: process.pid,
  }
  const ownership = createOwnership(own.id)
  // A table full of addresses that lead nowhere would otherwise be told line by line.
  const linkLogger = sharedLogger(logger)
  const links = new Links({
    ...{ self: own.id, host: own.host, logger, limits },
    dial: ({ peer, address }) =>
      transport.openLink({ ...{ self: own.id, peer, address, key }, logger: linkLogger }),
    changed: () => party.changed(),
    lost: () => party.lost(),
  })
  const context: PartyContext = {
    ...{ own, ownership, links, limits, logger },
    pool: openPool(url, limits.statementMs),
    table: createOutage({ logger, what: 'peers: the table of processes' }),
    known: createKnown(),
    written: options.written ?? (() => 0),
  }
  let party: Party = createVisitor(context)
  let member: Member | null = null
  let closed = false
  return {
    opening: () => party.opening(),
    others: () => party.others(),
    ownerOf: ownership.ownerOf,
    passBy: (id, why) => links.passBy(id, why),
    processes: () => {
      const row = member?.row() ?? null
      return [...(row === null ? [] : [row]), ...context.known.rows()].map((one) => ({
        ...one,
        ...links.stateOf(one.id),
        own: one.id === own.id,
      }))
    },
    join: async (answer) => {
      const listening = createListening({
        hostOf: () => peerHostOf(config.PEER_HOST, url),
        port: config.PEER_PORT,
        listen: (place) =>
          transport.openPeerListener({
            ...{ ...place, self: own.id, key, answer, logger },
            connected: () => member?.reached(),
          }),
        logger,
        aloneMs: limits.aloneMs,
      })
      member = createMember(context, listening)
      party = member
      await member.join()
    },
    leave: async () => member?.leave(),
    close: async () => {
      if (closed) return
      closed = true
      await member?.leave()
      await Promise.all([links.close(), member?.close()])
      await context.pool.end()
    },
  }
}
