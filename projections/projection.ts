import type { DomainEvent } from '../src/events/catalogue.ts'
import type { EventMetadata } from '../src/events/envelope.ts'
import type { Change, Table } from './rows.ts'

/** An event for projections, upcast to the newest version, with its position and metadata. */
export type ProjectedEvent = DomainEvent & {
  readonly id: string
  readonly position: bigint
  readonly stream: string
  readonly revision: number
  readonly recordedAtMs: number
  readonly metadata: EventMetadata
}

/** Seals rows. Someone without the key can change a row, but cannot seal it, so a changed row is not trusted. */
export type RowSeal = {
  /** Returns the seal of a string, made with the current key. */
  of(text: string): string
  /** Whether this is a seal of the text, made with the current key or an earlier one. */
  fits(text: string, seal: string): boolean
}

/** Returns the physical table for a table name that readers use. */
export type TableName = (name: string) => string

type Declared = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /**
   * If true, an event that cannot be applied halts the rows of its stream, while other streams continue. If false, the event is set aside,
   * and the rows continue without it.
   */
  readonly money: boolean
  /** Set if the rows are about access. If an event is set aside, this is then logged as fatal. */
  readonly guards?: true
  readonly tables: readonly Table[]
  /** Statements that create additional views or functions for readers. They run after the tables go live. */
  readonly readers?: (table: TableName) => readonly string[]
  /**
   * For money projections: the totals of the rows, by organization. New rows replace the live rows only if their totals match those of
   * the log.
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

/** A projection that converts events to row changes without reading any rows. */
export type StatelessProjection = Declared & {
  readonly fold: (events: readonly ProjectedEvent[]) => Change[]
}

/**
 * A projection whose rows are the states of streams. Rows are always written as a whole, from states in the projector's memory. A state
 * that is not in memory is read from rows with a valid seal, or folded from the start of the stream. Values that someone else has written
 * into a row are therefore never used.
 */
export type StatefulProjection<State = unknown, Row = unknown> = Declared & {
  readonly states: {
    initial(stream: string): State
    copy(state: State): State
    /** Folds the stream's next event into the state, in place. Throws if the stream breaks its own rules. */
    evolve(state: State, event: ProjectedEvent): void
    /** Returns the row changes for the states since `written` was last called. `seal` is a keyed hash. */
    write(states: readonly State[], seal: RowSeal): Change[]
    written(state: State): void
    /** Reads the rows of streams. `open` returns the state in a row, or null if the row does not have a valid seal. */
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
 * A versioned, disposable read model. Folding is pure: the same events in the same order result in the same rows, regardless of how they
 * are divided into batches.
 *
 * Increase `version` when the tables or the fold change. The new version is then built in new tables, which replace the old ones in
 * one transaction.
 */
export type Projection = StatelessProjection | StatefulProjection

/** A read query: SQL with its parameters, for the caller to run. Rows have the type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }
