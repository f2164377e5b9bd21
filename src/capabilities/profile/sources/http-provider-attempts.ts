import type { NoPage } from '../../../egress/dial.ts'
import type { PageAnswer, PageRequest } from '../../../egress/page.ts'
import type { ProviderAnswer } from './provider.ts'

export type FetchPage = (request: PageRequest) => Promise<PageAnswer>
export type Page = Extract<PageAnswer, { kind: 'page' }>

/** Fresh data takes 1 to 5 s (Spec §4.3.4), so one attempt can use the whole time of its call. */
export const attemptTimeoutMsDefault = 8_000
const connectTimeoutMs = 1_000
export const attemptsMax = 2

const retriedStatuses = new Set([502, 503, 504])
/** Errors without an answer, after which another server with the same name may answer. */
const retriedCodes = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
  'UND_ERR_SOCKET',
])

/**
 * Asks, and asks again if the first attempt got no answer. `deadlineMs` is on the clock of `now`. `timeoutMs` is the limit of one attempt.
 */
export const fetchWithRetry = async (
  fetchPage: FetchPage,
  request: Omit<PageRequest, 'deadlineMs' | 'connectTimeoutMs' | 'signal'>,
  {
    deadlineMs,
    timeoutMs,
    signal,
    now,
  }: { deadlineMs: number; timeoutMs: number; signal: AbortSignal; now: () => number },
): Promise<PageAnswer> => {
  let answer: PageAnswer = { kind: 'timeout', detail: 'deadline' }
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const remainingMs = Math.floor(deadlineMs - now())
    if (signal.aborted || remainingMs <= 0) return answer
    answer = await fetchPage({
      ...request,
      deadlineMs: Math.min(timeoutMs, remainingMs),
      connectTimeoutMs: Math.min(connectTimeoutMs, remainingMs),
      signal,
    })
    if (!isWorthRetrying(answer)) return answer
  }
  return answer
}

const isWorthRetrying = (answer: PageAnswer): boolean => {
  // A server that states a retry time must not be asked earlier.
  if (answer.kind === 'page')
    return retriedStatuses.has(answer.status) && answer.headers['retry-after'] === undefined
  if (answer.kind === 'timeout') return answer.detail === 'connect'
  return answer.kind === 'unreachable' && retriedCodes.has(answer.detail)
}

/** The reason why the source did not answer. Details of redirects are left out, because they can name the requested person. */
export const answerOfNoPage = ({ kind, detail }: NoPage): ProviderAnswer => {
  if (kind === 'timeout' || kind === 'unreachable') return { kind: 'transient', detail: `${kind} ${detail}` }
  return { kind: 'malformed', detail: kind === 'too_many_redirects' ? kind : `${kind} ${detail}` }
}

/**
 * Interprets a status; null if the body must be read. 401, 402 and 407 concern our account, so the caller can try again. 403 concerns the
 * person (see `createForbiddenWatch`).
 */
export const answerOfStatus = ({ status, headers }: Page, nowMs: number): ProviderAnswer | null => {
  if (status === 200 || status === 203) return null
  if (status === 404) return { kind: 'not_found' }
  if (status === 410) return { kind: 'gone' }
  if (status === 403 || status === 451) return { kind: 'inaccessible' }
  // Some networks use 999 for 429.
  if (status === 429 || status === 999)
    return { kind: 'rate_limited', retryAfterSeconds: retryAfterSeconds(headers['retry-after'], nowMs) }
  const mayPass = status >= 500 || [202, 401, 402, 407, 408, 425].includes(status)
  const detail = `status ${status}`
  if (!mayPass) return { kind: 'malformed', detail }
  const seconds = retryAfterSeconds(headers['retry-after'], nowMs)
  return { kind: 'transient', detail, ...(seconds === null ? {} : { retryAfterSeconds: seconds }) }
}

/** The maximum pause. A longer pause is a mistake of the source. */
export const retryAfterSecondsMax = 3_600

/** Reads seconds or a date (RFC 9110 §10.2.3); null for anything else. */
export const retryAfterSeconds = (header: string | undefined, nowMs: number): number | null => {
  if (header === undefined) return null
  const text = header.trim()
  const atMs = /^[A-Z][a-z]{2}, /.test(text) ? Date.parse(text) : Number.NaN
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : Math.ceil((atMs - nowMs) / 1000)
  return Number.isNaN(seconds) ? null : Math.min(Math.max(seconds, 1), retryAfterSecondsMax)
}

/** Returns the age of an answer on arrival (RFC 9111 §4.2.3), as far as its headers show the age. */
export const ageMsOf = ({ headers }: Page, nowMs: number): number => {
  const dateMs = Date.parse(headers.date ?? '')
  const apparentMs = Number.isNaN(dateMs) ? 0 : nowMs - dateMs
  const ageSeconds = /^\d{1,10}$/.test(headers.age ?? '') ? Number(headers.age) : 0
  return Math.max(0, apparentMs, ageSeconds * 1000)
}

/** A smaller age counts as zero, because `Date` has whole seconds and clocks differ. */
export const ageUnknowableMs = 2_000

/** A source may redirect us to its own origin, and to its own host over TLS. */
export const isSameHost = (from: URL, to: URL): boolean =>
  to.origin === from.origin || (to.protocol === 'https:' && to.port === '' && to.hostname === from.hostname)

/** The number of 403 in a row after which the source counts as having locked us out. So many people in a row are never hidden. */
export const forbiddenInARowMax = 10
const alarmEveryMs = 60_000

export type Logger = {
  error: (fields: object, message: string) => void
  warn: (fields: object, message: string) => void
}

/** Distinguishes a hidden person from a source that has locked us out. Otherwise, every person would be reported and cached as missing. */
export const createForbiddenWatch = ({
  logger,
  now,
}: {
  logger: Logger
  now: () => number
}): ((page: Page, answer: ProviderAnswer | null) => ProviderAnswer | null) => {
  let inARow = 0
  let alarmedAtMs = Number.NEGATIVE_INFINITY
  return (page, answer) => {
    const refusesUs = page.status === 401 || page.status === 402 || page.status === 407
    const isForbidden = page.status === 403
    inARow = isForbidden ? inARow + 1 : answer?.kind === 'transient' ? inARow : 0
    if (!refusesUs && inARow < forbiddenInARowMax) return answer
    if (now() - alarmedAtMs >= alarmEveryMs) {
      alarmedAtMs = now()
      logger.error(
        { provider: 'http', status: page.status },
        'the profile source refuses our requests: check its key and our account there',
      )
    }
    return { kind: 'transient', detail: `status ${page.status}, refused` }
  }
}
