import type { NoPage } from '../../../egress/dial.ts'
import type { PageAnswer, PageRequest } from '../../../egress/page.ts'
import { canonicalLid, type Identifiers } from '../identifier.ts'
import type { Rewrite } from '../mapping/declared.ts'
import { isFields, memberOf } from '../mapping/fields.ts'
import { isEmptyProfile, type MappedProfile, mapProfile } from '../mapping/mapping.ts'
import type { ProfileIds, ProfileRef, ProfileSource, ProviderAnswer } from './provider.ts'

/**
 * A source that answers in JSON, such as another service or a partner's directory. The URL is built from a template and the canonical
 * identifier, never from the text of a caller.
 */

const jsonTypes = [
  'application/json',
  'application/ld+json',
  'application/problem+json',
  'text/json',
] as const

export const createHttpProvider = ({
  url,
  key,
  rewrite,
  identifiers,
  timeoutMs = attemptTimeoutMsDefault,
  fetchPage,
  clock,
  logger,
}: {
  /** If the path or query has both `{lid}` and `{urn}`, the unknown identifier is left empty. */
  url: string
  /** A token for `Authorization: Bearer`, or a whole header such as `X-Api-Key: …`. Null if the source needs no credentials. */
  key: string | null
  /** Null if the source's answers use the service's own field names. */
  rewrite: Rewrite | null
  identifiers: Identifiers
  timeoutMs?: number
  fetchPage: FetchPage
  /** `now` is `performance.now()`, and `epochMs` is `Date.now()`. */
  clock: { now: () => number; epochMs: () => number }
  logger: Logger
}): ProfileSource => {
  const template = parseTemplate(url)
  const headers = key === null ? {} : credentials(key)
  const forbiddenWatch = createForbiddenWatch({ logger, now: clock.now })
  return {
    name: 'http',
    supports: ({ kind }) => url.includes(`{${kind}}`),
    fetch: async (ref, { deadlineMs, ageMaxMs, signal }) => {
      const asked = expandTemplate(url, ref)
      const page = await fetchWithRetry(
        fetchPage,
        {
          url: asked,
          accept: jsonTypes,
          // Intermediate caches must not return an answer that is too old.
          headers: { ...headers, ...(ageMaxMs === null ? {} : { 'cache-control': maxAge(ageMaxMs) }) },
          mayRedirectTo: (target) => isSameHost(template, target),
        },
        { deadlineMs, timeoutMs, signal, now: clock.now },
      )
      if (page.kind !== 'page') return answerOfNoPage(page)
      const nowMs = clock.epochMs()
      const answer = forbiddenWatch(page, answerOfStatus(page, nowMs))
      if (answer !== null) return answer
      const body = parseJson(page.body)
      const mapped = body === undefined ? null : mapBody(body, rewrite, identifiers)
      if (mapped === null) return { kind: 'malformed', detail: 'no JSON object' }
      return found(mapped, { ref, page, ageMaxMs, nowMs, bodyAgeMs: envelopeAgeMs(body) })
    },
  }
}

const parseJson = (body: Buffer): unknown => {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    return undefined
  }
}

/** Maps a body. Answers of our own API are in an envelope, which is removed first. */
const mapBody = (body: unknown, rewrite: Rewrite | null, identifiers: Identifiers): MappedProfile | null => {
  if (rewrite !== null) return mapProfile(rewrite(body), identifiers)
  const result = memberOf(body, 'result')
  return mapProfile(isFields(result) ? result : body, identifiers)
}

/** Reads the `cache_age_hours` of our own API's answers. */
const envelopeAgeMs = (body: unknown): number => {
  const hours = memberOf(body, 'cache_age_hours')
  return typeof hours === 'number' && hours > 0 ? hours * 3_600_000 : 0
}

type Arrival = {
  readonly ref: ProfileRef
  readonly page: Page
  readonly ageMaxMs: number | null
  readonly nowMs: number
  readonly bodyAgeMs: number
}

/**
 * Converts a mapped person to an answer. Answers that do not identify their person, empty answers, and answers older than
 * requested are malformed, even if the source calls them fresh.
 */
const found = (mapped: MappedProfile, arrival: Arrival): ProviderAnswer => {
  const { ref, page, ageMaxMs, nowMs, bodyAgeMs } = arrival
  if (mapped.deleted) return { kind: 'gone' }
  if (mapped.lid === null) return { kind: 'malformed', detail: 'no profile id' }
  if (isEmptyProfile(mapped.data)) return { kind: 'malformed', detail: 'an empty profile' }
  const headerAgeMs = ageMsOf(page, nowMs)
  const statedMs = nowMs - Math.max(bodyAgeMs, headerAgeMs < ageUnknowableMs ? 0 : headerAgeMs)
  const observedAtMs = Math.min(mapped.observedAtMs ?? statedMs, nowMs)
  if (ageMaxMs !== null && nowMs - observedAtMs > ageMaxMs)
    return { kind: 'malformed', detail: 'older than asked for' }
  const ids = { lid: mapped.lid, urn: mapped.urn }
  const renamed = ref.kind === 'lid' && ref.value !== ids.lid && mapped.formerLids.includes(ref.value)
  return {
    kind: 'found',
    ids,
    data: mapped.data,
    observedAtMs,
    redirected: renamed || leadsTo(page, ref, ids),
  }
}

/** Whether we were redirected to a URL that names the person in the answer instead of the requested person. */
const leadsTo = (page: Page, ref: ProfileRef, { lid, urn }: ProfileIds): boolean => {
  const url = URL.parse(page.url)
  if (url === null || ref.value === lid || ref.value === urn) return false
  const names = [
    ...url.pathname.split('/').map(canonicalLid),
    ...[...url.searchParams.values()].map(canonicalLid),
  ]
  return names.includes(lid) || (urn !== null && names.includes(urn))
}

/** Throws a TypeError if the template is invalid, or if an identifier could change which server is called. */
export const parseTemplate = (template: string): URL => {
  const [one, other] = ['aaa', 'bbb'].map((value) =>
    URL.parse(template.replaceAll(/\{(?:lid|urn)\}/g, value)),
  )
  if (one === null || one === undefined || other?.origin !== one.origin)
    throw new TypeError('the URL must be absolute, with {lid} or {urn} only in its path or query')
  if (one.href === other.href) throw new TypeError('the URL must contain {lid} or {urn} in its path or query')
  if (one.username !== '' || one.password !== '')
    throw new TypeError('the URL must not contain credentials, because URLs are logged')
  return one
}

/** Inserts the encoded identifier, so that it is never more than one path segment or one value. */
export const expandTemplate = (template: string, { kind, value }: ProfileRef): string =>
  template.replaceAll(/\{(lid|urn)\}/g, (_, name) => (name === kind ? encodeURIComponent(value) : ''))

/** Returns the header with the key. Throws a TypeError that does not repeat the key. */
export const credentials = (key: string): Record<string, string> => {
  const [, name = 'authorization', value = `Bearer ${key}`] = /^([A-Za-z0-9-]{1,64}): ?(.+)$/.exec(key) ?? []
  if (!/^[\x21-\x7e][\x20-\x7e]*$/.test(value))
    throw new TypeError('the key contains characters that are not allowed in a header')
  return { [name.toLowerCase()]: value }
}

const maxAge = (ageMaxMs: number): string => `max-age=${Math.max(0, Math.floor(ageMaxMs / 1000))}`

export type FetchPage = (request: PageRequest) => Promise<PageAnswer>
type Page = Extract<PageAnswer, { kind: 'page' }>

/** Fresh data takes 1 to 5 s (Spec §4.3.4), so one attempt can use the whole time of its call. */
const attemptTimeoutMsDefault = 8_000
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
const fetchWithRetry = async (
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
const answerOfNoPage = ({ kind, detail }: NoPage): ProviderAnswer => {
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
const ageMsOf = ({ headers }: Page, nowMs: number): number => {
  const dateMs = Date.parse(headers.date ?? '')
  const apparentMs = Number.isNaN(dateMs) ? 0 : nowMs - dateMs
  const ageSeconds = /^\d{1,10}$/.test(headers.age ?? '') ? Number(headers.age) : 0
  return Math.max(0, apparentMs, ageSeconds * 1000)
}

/** A smaller age counts as zero, because `Date` has whole seconds and clocks differ. */
const ageUnknowableMs = 2_000

/** A source may redirect us to its own origin, and to its own host over TLS. */
const isSameHost = (from: URL, to: URL): boolean =>
  to.origin === from.origin || (to.protocol === 'https:' && to.port === '' && to.hostname === from.hostname)

/** The number of 403 in a row after which the source counts as having locked us out. So many people in a row are never hidden. */
export const forbiddenInARowMax = 10
const alarmEveryMs = 60_000

export type Logger = {
  error: (fields: object, message: string) => void
  warn: (fields: object, message: string) => void
}

/** Distinguishes a hidden person from a source that has locked us out. Otherwise, every person would be reported and cached as missing. */
const createForbiddenWatch = ({
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
