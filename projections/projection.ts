import type { DomainEvent } from '../src/events/catalogue.ts'
import type { EventMetadata } from '../src/events/envelope.ts'

/** An event as projections see it: in today's vocabulary, with its place and envelope. */
export type ProjectedEvent = DomainEvent & {
  readonly id: string
  readonly position: bigint
  readonly stream: string
  readonly revision: number
  readonly recordedAtMs: number
  readonly metadata: EventMetadata
}

/**
 * One set-based statement. Each column becomes a `text[]` parameter, in order; the SQL casts what `unnest` yields.
 */
export type Statement = { readonly text: string; readonly columns: readonly (readonly (string | null)[])[] }

export type Table = {
  /** The name readers use: a view of the version that is live. */
  readonly name: string
  /** Column definitions and primary key, without indexes. */
  readonly columns: string
  /** Created after a rebuild has filled the table. `$table` stands for its name. */
  readonly indexes?: readonly string[]
}

/** Resolves a table's reading name to the physical table being written. */
export type TableName = (name: string) => string

type Declared = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /**
   * A read model of money stops the rows of a stream at an event of it that it cannot take, and goes on with all others;
   * any other read model sets the event aside and goes on.
   */
  readonly money: boolean
  /** Its rows tell who may do what. An event that is set aside is cried out, not only noted. */
  readonly guards?: true
  readonly tables: readonly Table[]
}

/** Each batch becomes statements by itself: rows are added, or changed by what the events say. */
export type StatelessProjection = Declared & {
  readonly fold: (events: readonly ProjectedEvent[], table: TableName) => Statement[]
}

/**
 * Its rows are what each stream has come to, written whole from states the projector keeps. Where it does not have one,
 * it takes the rows only under their seal, and else folds the stream from its start: no row it did not write becomes
 * part of one it writes.
 */
export type StatefulProjection<State = unknown, Row = unknown> = Declared & {
  readonly states: {
    initial(stream: string): State
    copy(state: State): State
    /** Folds the stream's next event into the state, in place. Throws where the stream breaks its own rules. */
    evolve(state: State, event: ProjectedEvent): void
    /** The rows of states, as far as they changed since they were `written`. `seal` is a keyed hash. */
    write(
      states: readonly State[],
      port: { readonly table: TableName; readonly seal: (text: string) => string },
    ): Statement[]
    written(state: State): void
    /** The rows of streams, and the state a row holds: null where its seal is not the projector's. */
    rows(streams: readonly string[], table: TableName): Query<Row>
    open(
      row: Row,
      seal: (text: string) => string,
    ): {
      readonly stream: string
      readonly revision: number
      readonly digest: string
      readonly state: State
    } | null
  }
}

/**
 * A versioned, disposable read model. Folding is pure: the same events in the same order give the same rows, however
 * they are cut into batches.
 *
 * Raise `version` when the tables or the fold change: the new version is built beside the old one and switched in one
 * transaction.
 */
export type Projection = StatelessProjection | StatefulProjection

/** A read: SQL with its parameters, for whoever runs it. Rows are of type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }

/** Turns rows of a fixed width into columns. */
export const columnsOf = <const Row extends readonly (string | null)[]>(
  rows: readonly Row[],
  width: Row['length'],
): (string | null)[][] => Array.from({ length: width }, (_, column) => rows.map((row) => row[column] ?? null))
