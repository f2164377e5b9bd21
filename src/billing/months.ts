/**
 * A ledger's months are calendar months in UTC. An event belongs to the month of its effective time. If that month was
 * already closed when the event was recorded, the event belongs to the first open month, as a correction.
 */

/** A month in the form `2026-11`. */
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

export const monthStart = (month: Month): string => `${month}-01T00:00:00.000Z`

/** How long after its end a month can be closed. By then, its last calls have been written. */
export const closableAfterMs = 15 * 60_000

/**
 * The maximum number of events between the last event that a closing counts and the closing itself. A reader that looks
 * this many events ahead sees every closing in time, and never has to read the ledger twice.
 */
export const closingGapMax = 4_000

/** Events up to the revision `through` count in the closed month, or in a month before it. */
export type Closing = { readonly month: Month; readonly through: number }

/** The closing that a `MonthClosed` at this revision records. */
export const closingAt = (
  revision: number,
  { month, through_revision }: { readonly month: Month; readonly through_revision: number },
): Closing => ({ month, through: Math.max(through_revision, revision - closingGapMax) })

/**
 * Returns a function that finds the month in which an event counts. It must be called with the events of a ledger in
 * order. `closings` must be in order too, and must contain every closing before that event.
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
