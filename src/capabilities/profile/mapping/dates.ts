/**
 * Dates of a career, which are known to the year, the month or the day. Never padded: "2019" is not the first of
 * January, and a reader cannot tell an invented day from a known one.
 */

/** Outside of these, a date is a placeholder of some database (0001-01-01, 9999-12-31). */
const yearMin = 1900
const yearMax = 2100

/** A timestamp has 35 at most. */
const dateCharactersMax = 100

const present = new Set(['present', 'current', 'currently', 'now', 'today', 'ongoing', 'to date'])

/**
 * "YYYY", "YYYY-MM" or "YYYY-MM-DD" (ISO 8601); null for everything else, impossible days included. Takes texts of
 * these forms, timestamps, which are cut to their day as written, years as numbers, and `{year, month, day}`.
 */
export const partialDate = (value: unknown): string | null => {
  if (typeof value === 'number') return fromParts(value, undefined, undefined)
  if (typeof value === 'string') return value.length > dateCharactersMax ? null : fromText(value.trim())
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
  const { year, month, day }: { year?: unknown; month?: unknown; day?: unknown } = value
  return fromParts(year, month ?? undefined, day ?? undefined)
}

/**
 * The end of something, and whether it goes on. `isCurrent` as the source says it decides; without it, no end and
 * "Present" mean that it goes on. What goes on has no end.
 */
export const endOf = (
  value: unknown,
  isCurrent: unknown,
): { readonly endDate: string | null; readonly isCurrent: boolean } => {
  if (isCurrent === true) return { endDate: null, isCurrent: true }
  const goesOn = value === undefined || value === null || value === '' || isPresent(value)
  if (goesOn) return { endDate: null, isCurrent: isCurrent !== false }
  return { endDate: partialDate(value), isCurrent: false }
}

const isPresent = (value: unknown): boolean =>
  typeof value === 'string' && (value.trim() === '' || present.has(value.trim().toLowerCase()))

const fromText = (text: string): string | null => {
  const parts = /^(\d{4})(?:-(\d{2})(?:-(\d{2})(?:[T ]\d{2}:\d{2}.{0,30})?)?)?$/.exec(text)
  if (parts === null) return null
  const [, year, month, day] = parts
  return fromParts(Number(year), numberOf(month), numberOf(day))
}

const numberOf = (digits: string | undefined): number | undefined =>
  digits === undefined ? undefined : Number(digits)

const fromParts = (year: unknown, month: unknown, day: unknown): string | null => {
  if (!isWithin(year, yearMin, yearMax)) return null
  if (month === undefined) return day === undefined ? String(year) : null
  if (!isWithin(month, 1, 12)) return null
  const yearAndMonth = `${year}-${twoDigits(month)}`
  if (day === undefined) return yearAndMonth
  return isWithin(day, 1, daysIn(year, month)) ? `${yearAndMonth}-${twoDigits(day)}` : null
}

const isWithin = (value: unknown, min: number, max: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max

/** The day before the first of the next month. */
const daysIn = (year: number, month: number): number => new Date(Date.UTC(year, month, 0)).getUTCDate()

const twoDigits = (value: number): string => String(value).padStart(2, '0')
