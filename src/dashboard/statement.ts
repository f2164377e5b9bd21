import type pg from 'pg'
import { linesAfter, linesBefore, rowsOf, type StatementRow } from './queries.ts'

/** The statement's pages. */

/** Of the first page, which also shows the account's figures, lots and keys. */
const newestLines = 20
const pageLines = 100

/** Where a page of the statement begins: below or above a revision; null: with the newest line. */
export type StatementPlace = { readonly before: string } | { readonly after: string } | null

export type StatementPage = {
  /** Newest first. */
  readonly lines: readonly StatementRow[]
  /** The revision of the next page; null: there is nothing further in that direction. */
  readonly older: string | null
  readonly newer: string | null
}

/** Above every revision: a bigint's largest value. */
const beyond = '9223372036854775807'

export const statementPage = async (
  pool: pg.Pool,
  organizationId: string,
  place: StatementPlace,
): Promise<StatementPage> => {
  if (place !== null && 'after' in place) {
    const found = await rowsOf(
      pool,
      linesAfter(organizationId, { revision: place.after, max: pageLines + 1 }),
    )
    const lines = found.slice(0, pageLines).reverse()
    const newer = found.length > pageLines ? (lines.at(0)?.revision ?? null) : null
    return { lines, older: lines.at(-1)?.revision ?? null, newer }
  }
  const shown = place === null ? newestLines : pageLines
  const found = await rowsOf(
    pool,
    linesBefore(organizationId, { revision: place?.before ?? beyond, max: shown + 1 }),
  )
  const lines = found.slice(0, shown)
  return {
    lines,
    older: found.length > shown ? (lines.at(-1)?.revision ?? null) : null,
    newer: place === null ? null : (lines.at(0)?.revision ?? null),
  }
}
