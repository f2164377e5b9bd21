import { canonicalLid, type Identifiers } from '../identifier.ts'
import type { Rewrite } from '../mapping/declared.ts'
import { isFields, memberOf } from '../mapping/fields.ts'
import { isEmptyProfile, type MappedProfile, mapProfile } from '../mapping/mapping.ts'
import {
  ageMsOf,
  ageUnknowableMs,
  answerOfNoPage,
  answerOfStatus,
  attemptTimeoutMsDefault,
  createForbiddenWatch,
  type FetchPage,
  fetchWithRetry,
  isSameHost,
  type Logger,
  type Page,
} from './http-provider-attempts.ts'
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
