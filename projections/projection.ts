import type { DomainEvent } from '../src/events/catalogue.ts'
import type { EventMetadata } from '../src/events/envelope.ts'
import type { Change, Table } from './rows.ts'

/** An event as projections get it: upcast to the newest version, with its position and envelope. */
export type ProjectedEvent = DomainEvent & {
  readonly id: string
  readonly position: bigint
  readonly stream: string
  readonly revision: number
  readonly recordedAtMs: number
  readonly metadata: EventMetadata
}

/** Seals rows. Someone without the key can change a row, but cannot seal it, so the changed row is not trusted. */
export type RowSeal = {
  /** Returns the seal of a string, made with the current key. */
  of(text: string): string
  /** Whether this is a seal of the text, made with the current key or an earlier one. */
  fits(text: string, seal: string): boolean
}

/** Maps the name of a table for readers to the physical table that is written. */
export type TableName = (name: string) => string

type Declared = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /**
   * If true, the rows of a stream stop at an event that cannot be applied, and other streams continue. If false, the event is set
   * aside, and the rows continue without it.
   */
  readonly money: boolean
  /** Set if the rows are about permissions. An event that is set aside is then logged as fatal. */
  readonly guards?: true
  readonly tables: readonly Table[]
  /** Statements that create additional views or functions for readers, after the tables have gone live. */
  readonly readers?: (table: TableName) => readonly string[]
  /**
   * For projections of money: the totals of the rows, by organization. New rows replace the live rows only if their totals match
   * those of the log.
   */
  readonly totals?: {
    readonly figures: readonly Figure[]
    readonly of: (table: TableName) => Query<Total>
  }
}

/** A total of an organization: a number of lines, or an amount in micro-credits. */
export type Figure = 'lines' | 'balance' | 'granted' | 'charged' | 'expired' | 'adjusted'

/** `amount` is a whole number, as text. */
type Total = { readonly organization_id: string; readonly figure: Figure; readonly amount: string }

/** A projection that turns each batch of events into changes of rows without reading rows. */
export type StatelessProjection = Declared & {
  readonly fold: (events: readonly ProjectedEvent[]) => Change[]
}

/**
 * A projection whose rows are the states of streams. Rows are always written as a whole, from states in the projector's memory. A
 * state that is not in memory is read from rows with a valid seal, or folded from the start of the stream. The projector therefore
 * never uses values that someone else has written into a row.
 */
export type StatefulProjection<State = unknown, Row = unknown> = Declared & {
  readonly states: {
    initial(stream: string): State
    copy(state: State): State
    /** Folds the stream's next event into the state, in place. Throws if the stream breaks its own rules. */
    evolve(state: State, event: ProjectedEvent): void
    /** The changes of rows that result from the states since `written` was last called. `seal` is a keyed hash. */
    write(states: readonly State[], seal: RowSeal): Change[]
    written(state: State): void
    /** The rows of streams. `open` returns the state in a row; null if the row does not have the projector's seal. */
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
 * A versioned, disposable read model. Folding is pure: the same events in the same order result in the same rows, however they are
 * divided into batches.
 *
 * Increase `version` when the tables or the fold change. The new version is then built in new tables, which replace the old ones in
 * one transaction.
 */
export type Projection = StatelessProjection | StatefulProjection

/** A read query: SQL with its parameters, for the caller to run. Rows have the type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }
