import type pg from 'pg'
import type { Outage, OutageLogger } from '../event-log/outage.ts'
import { type BeatsLimits, beatsLimits } from './beats.ts'
import type { Known } from './known.ts'
import { type Links, type LinksLimits, linksLimits } from './links.ts'
import type { Owners } from './owners.ts'
import { type OwnersLimits, ownersLimits } from './owners-wanted.ts'
import type { Ownership } from './ownership.ts'
import type { OwnProcess } from './processes-table.ts'

/** How a process takes part: as a visitor, or as a member. */
export type Party = Pick<Owners, 'opening' | 'others'> & {
  /** Connections came or went. */
  changed(): void
  /** One went: the process ends, or leaves, or the network does. */
  lost(): void
}

/** What both need. */
export type PartyContext = {
  readonly own: OwnProcess
  /** For the table alone: a statement of it never waits for others. */
  readonly pool: pg.Pool
  readonly table: Outage
  readonly ownership: Ownership
  readonly links: Links
  readonly known: Known
  /** Commands this process has written into ledgers. */
  readonly written: () => number
  readonly limits: PeersLimits
  readonly logger: OutageLogger
}

export type PeersLimits = LinksLimits &
  BeatsLimits &
  OwnersLimits & {
    /** Alone for so long, a process stops to listen. */
    readonly aloneMs: number
    /** A process that reaches others, and that none of them reaches for so long, says so. */
    readonly unreachedMs: number
    /** What a process that ends waits for its row to go. */
    readonly leavingMs: number
    /** What a command waits for others to be known. */
    readonly openingMs: number
    /** A visitor that is used looks this often. */
    readonly lookMs: number
    /** A visitor that was not used for so long waits for its look again. */
    readonly staleMs: number
    /** One statement about the table, and one connection for it. */
    readonly statementMs: number
  }

export const peersLimits: PeersLimits = {
  ...linksLimits,
  ...beatsLimits,
  ...ownersLimits,
  aloneMs: 5_000,
  unreachedMs: 5_000,
  leavingMs: 500,
  openingMs: 500,
  lookMs: 1_000,
  staleMs: 5_000,
  statementMs: 2_000,
}
