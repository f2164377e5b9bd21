import type { DomainEvent } from '../src/events/catalogue.ts'
import type { EventMetadata } from '../src/events/envelope.ts'
import type { Change, Table } from './rows.ts'

/** An event as projections see it: in today's vocabulary, with its place and envelope. */
export type ProjectedEvent = DomainEvent & {
  readonly id: string
  readonly position: bigint
  readonly stream: string
  readonly revision: number
  readonly recordedAtMs: number
  readonly metadata: EventMetadata
}

/** Seals rows: someone without the key can change a row, but the change is not trusted. */
export type RowSeal = {
  /** The seal of a text, under the key in use. */
  of(text: string): string
  /** Whether it is a seal of the text, under the key in use or an earlier one. */
  fits(text: string, seal: string): boolean
}

/** Resolves a table's reading name to the physical table being written. */
export type TableName = (name: string) => string

type Declared = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /**
   * A read model of money stops the rows of a stream at an event that it cannot apply, and continues with all other streams.
   * Any other read model sets the event aside and continues.
   */
  readonly money: boolean
  /** Its rows decide permissions. An event that is set aside is logged as fatal. */
  readonly guards?: true
  readonly tables: readonly Table[]
  /** Statements that create what readers use in addition to a view of each table, once the tables are live. */
  readonly readers?: (table: TableName) => readonly string[]
  /** For a read model of money: the totals of its rows, by organization. Rows replace the live ones only if they match the totals of the log. */
  readonly totals?: {
    readonly figures: readonly Figure[]
    readonly of: (table: TableName) => Query<Total>
  }
}

/** A total of an organization: the number of its lines, or an amount in micro-credits. */
export type Figure = 'lines' | 'balance' | 'granted' | 'charged' | 'expired' | 'adjusted'

/** `amount` is a whole number, as text. */
type Total = { readonly organization_id: string; readonly figure: Figure; readonly amount: string }

/** Each batch becomes changes by itself: rows are added, or changed as the events require. */
export type StatelessProjection = Declared & {
  readonly fold: (events: readonly ProjectedEvent[]) => Change[]
}

/**
 * Its rows are the state of each stream, written whole from states that the projector keeps in memory. A state that is
 * not in memory is read from rows with a correct seal, or else folded from the start of the stream. So no row that
 * someone else wrote becomes part of a row of the projector.
 */
export type StatefulProjection<State = unknown, Row = unknown> = Declared & {
  readonly states: {
    initial(stream: string): State
    copy(state: State): State
    /** Folds the stream's next event into the state, in place. Throws if the stream breaks its own rules. */
    evolve(state: State, event: ProjectedEvent): void
    /** The rows of states, as far as they changed since they were `written`. `seal` is a keyed hash. */
    write(states: readonly State[], seal: RowSeal): Change[]
    written(state: State): void
    /** The rows of streams, and the state a row holds: null if its seal is not the projector's. */
    rows(streams: readonly string[], table: TableName): Query<Row>
    open(
      row: Row,
      seal: RowSeal,
    ): {
      readonly stream: string
      readonly revision: number
      readonly digest: string
      readonly state: State
    } | null
  }
}

/**
 * A versioned, disposable read model. Folding is pure: the same events in the same order give the same rows, for any
 * division into batches.
 *
 * Raise `version` when the tables or the fold change: the new version is built next to the old one and switched in one
 * transaction.
 */
export type Projection = StatelessProjection | StatefulProjection

/** A read: SQL with its parameters, for the caller to run. Rows are of type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }
