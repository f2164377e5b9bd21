import type { DomainEvent } from '../src/events/catalogue.ts'
import type { EventMetadata } from '../src/events/envelope.ts'
import type { Change, Table } from './rows.ts'

/** An event for projections: upcast to the newest version, with its place and envelope. */
export type ProjectedEvent = DomainEvent & {
  readonly id: string
  readonly position: bigint
  readonly stream: string
  readonly revision: number
  readonly recordedAtMs: number
  readonly metadata: EventMetadata
}

/** Seals rows. Without the key, someone can change a row, but not seal it, so the changed row is not trusted. */
export type RowSeal = {
  /** The seal of a text, with the current key. */
  of(text: string): string
  /** Whether this is a seal of the text, with the current key or an earlier one. */
  fits(text: string, seal: string): boolean
}

/** Maps the name of a table for readers to the physical table that is written. */
export type TableName = (name: string) => string

type Declared = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /**
   * If true, the rows of a stream stop at an event that cannot be applied, and other streams continue. Otherwise, the
   * read model sets the event aside and continues.
   */
  readonly money: boolean
  /** The rows decide permissions, so an event that is set aside is logged as fatal. */
  readonly guards?: true
  readonly tables: readonly Table[]
  /** Statements that create more views or functions for readers, once the tables are live. */
  readonly readers?: (table: TableName) => readonly string[]
  /** For money: the totals of the rows, by organization. New rows replace the live ones only if they match the log's totals. */
  readonly totals?: {
    readonly figures: readonly Figure[]
    readonly of: (table: TableName) => Query<Total>
  }
}

/** A total of an organization: a number of lines, or an amount in micro-credits. */
export type Figure = 'lines' | 'balance' | 'granted' | 'charged' | 'expired' | 'adjusted'

/** `amount` is a whole number, as text. */
type Total = { readonly organization_id: string; readonly figure: Figure; readonly amount: string }

/** A projection that turns each batch into changes without loading rows: rows are added, or changed as the events require. */
export type StatelessProjection = Declared & {
  readonly fold: (events: readonly ProjectedEvent[]) => Change[]
}

/**
 * The rows are the states of streams. They are always written whole, from states in the projector's memory. States that
 * are not in memory are read from rows with a valid seal, or folded from the start of the stream. So rows that someone
 * else wrote never become part of the projector's rows.
 */
export type StatefulProjection<State = unknown, Row = unknown> = Declared & {
  readonly states: {
    initial(stream: string): State
    copy(state: State): State
    /** Folds the stream's next event into the state, in place. Throws if the stream breaks its own rules. */
    evolve(state: State, event: ProjectedEvent): void
    /** The changes to rows since the states were `written`. `seal` is a keyed hash. */
    write(states: readonly State[], seal: RowSeal): Change[]
    written(state: State): void
    /** The rows of streams. `open` returns a row's state, or null if its seal is not the projector's. */
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
 * A versioned, disposable read model. Folding is pure: the same events in the same order result in the same rows, for
 * any division into batches.
 *
 * Raise `version` when the tables or the fold change: the new version is built next to the old one and switched in one
 * transaction.
 */
export type Projection = StatelessProjection | StatefulProjection

/** A read query: SQL with its parameters, for the caller to run. Rows have the type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }
