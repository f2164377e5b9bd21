import type { ProcessRow } from './processes-table.ts'

/** What the table said last, which holds while the database is away. */
export type Known = {
  /** Gives whether other processes, or other addresses, are there than before. */
  saw(rows: readonly ProcessRow[]): boolean
  /** With ages as of now. */
  rows(): readonly ProcessRow[]
}

export const createKnown = (): Known => {
  let seen: readonly ProcessRow[] = []
  let seenMs = 0
  let summary = ''
  return {
    saw: (rows) => {
      seen = rows
      seenMs = performance.now()
      const before = summary
      summary = rows
        .map(({ id, address }) => `${id} ${address?.host} ${address?.port}`)
        .sort()
        .join('\n')
      return summary !== before
    },
    rows: () => seen.map((row) => ({ ...row, ageMs: row.ageMs + performance.now() - seenMs })),
  }
}
