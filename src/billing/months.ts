/**
 * The months of a ledger. They are calendar months in UTC, and an event belongs to the month of its effective time. Once
 * that month is closed, the event belongs to the first month that was still open when it was recorded: a correction.
 */

/** `2026-11`. */
export type Month = string

const pattern = /^\d{4}-(0[1-9]|1[0-2])$/

export const isMonth = (text: string): boolean => pattern.test(text)

export const monthAfter = (month: Month): Month => {
  const year = Number(month.slice(0, 4))
  const ordinal = Number(month.slice(5))
  return ordinal === 12
    ? `${String(year + 1).padStart(4, '0')}-01`
    : `${month.slice(0, 5)}${String(ordinal + 1).padStart(2, '0')}`
}

export const monthBefore = (month: Month): Month => {
  const year = Number(month.slice(0, 4))
  const ordinal = Number(month.slice(5))
  return ordinal === 1
    ? `${String(year - 1).padStart(4, '0')}-12`
    : `${month.slice(0, 5)}${String(ordinal - 1).padStart(2, '0')}`
}

/** The instant at which a month begins. */
export const monthStart = (month: Month): string => `${month}-01T00:00:00.000Z`

/** The last calls of a month are written within this time after it: no month is closed earlier. */
export const closableAfterMs = 15 * 60_000

/**
 * How many events may come between the last event a closing counted and the closing itself. So a reader that reads a ledger in
 * order knows every closing after reading this many more events, and never has to read it twice to find all of them.
 */
export const closingGapMax = 4_000

/** The revision up to which events count for a closed month, and for the months before it. */
export type Closing = { readonly month: Month; readonly through: number }

/** What the `MonthClosed` at a revision closed. */
export const closingAt = (
  revision: number,
  { month, through_revision }: { readonly month: Month; readonly through_revision: number },
): Closing => ({ month, through: Math.max(through_revision, revision - closingGapMax) })

/**
 * The month in which an event counts. Called for the events of a ledger in order. `closings` are in order as well; those that
 * are later than the event may still be missing.
 */
export const createBookings = (closings: readonly Closing[]) => {
  let openFrom: Month = ''
  let passed = 0
  return (effectiveAt: string, revision: number): Month => {
    for (
      let next = closings[passed];
      next !== undefined && next.through < revision;
      next = closings[passed]
    ) {
      const after = monthAfter(next.month)
      if (after > openFrom) openFrom = after
      passed++
    }
    const month = effectiveAt.slice(0, 7)
    return month < openFrom ? openFrom : month
  }
}
