import { type UsageGroup, usageGroups } from '../../../projections/usage.ts'
import { missingParameter, type Refusal, wrongParameter } from '../../call/errors.ts'
import type { JsonObject } from '../../call/form.ts'
import { aRequestId, requestIdIn } from '../../call/request-id.ts'

/** Parses the parameters of account queries. The refusal names the first missing or wrong parameter. */

type Parsed<Input> = { readonly input: Input } | { readonly refusal: Refusal }

const usageDaysMax = 400
const dayMs = 86_400_000

export type UsageInput = { readonly from: string; readonly to: string; readonly groupBy: UsageGroup }

export const parseUsage = ({ from, to, group_by: group }: JsonObject): Parsed<UsageInput> => {
  for (const [name, value] of [
    ['from', from],
    ['to', to],
  ] as const) {
    if (value === undefined) return { refusal: missingParameter(name, 'string') }
    if (dayOf(value) === null) return { refusal: wrongParameter(name, 'a UTC day, such as 2026-11-01') }
  }
  const [first, last] = [dayOf(from), dayOf(to)]
  if (first === null || last === null || last < first || last - first >= usageDaysMax * dayMs)
    return {
      refusal: wrongParameter(
        'to',
        `a day that is not before "from", in a range of at most ${usageDaysMax} days`,
      ),
    }
  const groupBy = group === undefined ? 'day' : usageGroups.find((known) => known === group)
  if (groupBy === undefined)
    return { refusal: wrongParameter('group_by', `one of ${usageGroups.join(', ')}`) }
  return { input: { from: String(from), to: String(to), groupBy } }
}

/** The start of a day. PostgreSQL has no year 0. */
const dayOf = (value: unknown): number | null => {
  if (typeof value !== 'string' || !/^(?!0000)\d{4}-\d\d-\d\d$/.test(value)) return null
  const ms = Date.parse(value)
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(value) ? ms : null
}

export const parseRequestId = ({ request_id: given }: JsonObject): Parsed<string> => {
  const requestId = typeof given === 'string' ? requestIdIn(given) : null
  return requestId === null ? { refusal: wrongParameter('request_id', aRequestId) } : { input: requestId }
}

const exportEventsMax = 10_000

export type ExportInput = { readonly fromRevision: number; readonly max: number }

export const parseExport = ({ from_revision: from, max }: JsonObject): Parsed<ExportInput> => {
  const fromRevision = from === undefined ? 0 : wholeOf(from, 0, Number.MAX_SAFE_INTEGER - exportEventsMax)
  if (fromRevision === null)
    return { refusal: wrongParameter('from_revision', 'a revision, which is a whole number from 0') }
  const most = max === undefined ? exportEventsMax : wholeOf(max, 1, exportEventsMax)
  if (most === null) return { refusal: wrongParameter('max', `a whole number from 1 to ${exportEventsMax}`) }
  return { input: { fromRevision, max: most } }
}

const wholeOf = (value: unknown, min: number, max: number): number | null => {
  if (typeof value !== 'string' || !/^\d{1,16}$/.test(value)) return null
  const number = Number(value)
  return number >= min && number <= max ? number : null
}
