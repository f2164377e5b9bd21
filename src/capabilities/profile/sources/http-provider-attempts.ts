import type { NoPage } from '../../../egress/dial.ts'
import type { PageAnswer, PageRequest } from '../../../egress/page.ts'
import type { ProviderAnswer } from './provider.ts'

/** How a source on the network is asked, and the meaning of its statuses. */

export type FetchPage = (request: PageRequest) => Promise<PageAnswer>
export type Page = Extract<PageAnswer, { kind: 'page' }>

/** Fresh data takes 1 to 5 s (Spec §4.3.4): one attempt may use all the time of its call. */
export const attemptTimeoutMsDefault = 8_000
const connectTimeoutMs = 1_000
export const attemptsMax = 2

const retriedStatuses = new Set([502, 503, 504])
/** The request was not answered; the next server behind the name may answer it. */
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
 * Asks, and asks once more if the first attempt got no answer. `deadlineMs` is on the clock of `now`; `timeoutMs` is the most
 * that one attempt may take.
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
    // Whole milliseconds, because timers accept no others.
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
  // If a server names a time, it is asked after that time, not before.
  if (answer.kind === 'page')
    return retriedStatuses.has(answer.status) && answer.headers['retry-after'] === undefined
  if (answer.kind === 'timeout') return answer.detail === 'connect'
  return answer.kind === 'unreachable' && retriedCodes.has(answer.detail)
}

/** Why the source did not answer. The details of redirects are left out: they may name the person asked for. */
export const answerOfNoPage = ({ kind, detail }: NoPage): ProviderAnswer => {
  if (kind === 'timeout' || kind === 'unreachable') return { kind: 'transient', detail: `${kind} ${detail}` }
  return { kind: 'malformed', detail: kind === 'too_many_redirects' ? kind : `${kind} ${detail}` }
}

/**
 * The meaning of a status without its body; null if the body must be read. 401, 402 and 407 are about us and not about
 * the person, so that the caller may ask again; 403 is about the person (see `createForbiddenWatch`).
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

/** Longer pauses are requested by mistake, and would outlast the server that set them. */
export const retryAfterSecondsMax = 3_600

/** RFC 9110 §10.2.3: seconds or a date. Null if it is neither. */
export const retryAfterSeconds = (header: string | undefined, nowMs: number): number | null => {
  if (header === undefined) return null
  const text = header.trim()
  const atMs = /^[A-Z][a-z]{2}, /.test(text) ? Date.parse(text) : Number.NaN
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : Math.ceil((atMs - nowMs) / 1000)
  return Number.isNaN(seconds) ? null : Math.min(Math.max(seconds, 1), retryAfterSecondsMax)
}

/** The age of an answer when it arrived (RFC 9111 §4.2.3), as far as the caches on its way reported it. */
export const ageMsOf = ({ headers }: Page, nowMs: number): number => {
  const dateMs = Date.parse(headers.date ?? '')
  const apparentMs = Number.isNaN(dateMs) ? 0 : nowMs - dateMs
  const ageSeconds = /^\d{1,10}$/.test(headers.age ?? '') ? Number(headers.age) : 0
  return Math.max(0, apparentMs, ageSeconds * 1000)
}

/** `Date` counts whole seconds and clocks differ a little: anything less does not count as an age. */
export const ageUnknowableMs = 2_000

/** Where the source may redirect us: its own origin, and its own host over TLS. */
export const isSameHost = (from: URL, to: URL): boolean =>
  to.origin === from.origin || (to.protocol === 'https:' && to.port === '' && to.hostname === from.hostname)

/** This many 403 in a row, with no other answer between them, are about us: people are not all hidden at the same time. */
export const forbiddenInARowMax = 10
const alarmEveryMs = 60_000

export type Logger = {
  error: (fields: object, message: string) => void
  warn: (fields: object, message: string) => void
}

/**
 * Distinguishes a hidden person from a source that has locked us out. Otherwise every caller would get "no such person"
 * for everyone, and that answer would be cached.
 */
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
        'the profile source refuses us: check its key and our standing',
      )
    }
    return { kind: 'transient', detail: `status ${page.status}, refused` }
  }
}
