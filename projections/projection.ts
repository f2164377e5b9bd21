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

/**
 * A versioned, disposable read model. `fold` is pure: the same events in the same order give the same statements,
 * however they are cut into batches the rows end up the same.
 *
 * Raise `version` when the tables or the fold change: the new version is built beside the old one and switched in one
 * transaction.
 */
export type Projection = {
  readonly name: string
  readonly version: number
  readonly prefixes: readonly string[]
  /** A read model of money stops at an event it cannot fold; any other parks the event and goes on. */
  readonly money: boolean
  /** Its rows tell who may do what. An event that is set aside is cried out, not only noted. */
  readonly guards?: true
  readonly tables: readonly Table[]
  readonly fold: (events: readonly ProjectedEvent[], table: TableName) => Statement[]
}

/** A read: SQL with its parameters, for whoever runs it. Rows are of type `Row`. */
export type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }

/** Turns rows of a fixed width into columns. */
export const columnsOf = <const Row extends readonly (string | null)[]>(
  rows: readonly Row[],
  width: Row['length'],
): (string | null)[][] => Array.from({ length: width }, (_, column) => rows.map((row) => row[column] ?? null))
