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
 * A source that answers in JSON: another service, or a partner's directory. Its address is built from a
 * template and the canonical identifier; a caller's own text never gets there.
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
  /** With `{lid}` or `{urn}` in its path or query; if it has both, the unknown one is left empty. */
  url: string
  /** The credentials: a token for `Authorization: Bearer`, or a whole header, `X-Api-Key: …`. Null: none. */
  key: string | null
  /** Null: our own members. */
  rewrite: Rewrite | null
  identifiers: Identifiers
  /** The time limit of one attempt. */
  timeoutMs?: number
  fetchPage: FetchPage
  /** `now` as `performance.now()`, `epochMs` as `Date.now()`. */
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
          // Forbids caches between us and the source to give an answer that is too old.
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

/** Answers of our own kind are wrapped in an envelope. */
const mapBody = (body: unknown, rewrite: Rewrite | null, identifiers: Identifiers): MappedProfile | null => {
  if (rewrite !== null) return mapProfile(rewrite(body), identifiers)
  const result = memberOf(body, 'result')
  return mapProfile(isFields(result) ? result : body, identifiers)
}

/** The `cache_age_hours` of an answer of our own kind. */
const envelopeAgeMs = (body: unknown): number => {
  const hours = memberOf(body, 'cache_age_hours')
  return typeof hours === 'number' && hours > 0 ? hours * 3_600_000 : 0
}

/** The question, the answer, and their times. */
type Arrival = {
  readonly ref: ProfileRef
  readonly page: Page
  readonly ageMaxMs: number | null
  /** Since 1970. */
  readonly nowMs: number
  /** As stated in the body. */
  readonly bodyAgeMs: number
}

/**
 * A mapped person as the port's answer. Rejected: an answer that does not name its person, an empty answer,
 * and an answer older than requested, even if the source calls it fresh.
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

/** Whether we were redirected to an address that names the person of the answer, and not the person we asked for. */
const leadsTo = (page: Page, ref: ProfileRef, { lid, urn }: ProfileIds): boolean => {
  const url = URL.parse(page.url)
  if (url === null || ref.value === lid || ref.value === urn) return false
  const names = [
    ...url.pathname.split('/').map(canonicalLid),
    ...[...url.searchParams.values()].map(canonicalLid),
  ]
  return names.includes(lid) || (urn !== null && names.includes(urn))
}

/** Throws a TypeError if it is not a valid template, or if an identifier could choose the server. */
export const parseTemplate = (template: string): URL => {
  const [one, other] = ['aaa', 'bbb'].map((value) =>
    URL.parse(template.replaceAll(/\{(?:lid|urn)\}/g, value)),
  )
  if (one === null || one === undefined || other?.origin !== one.origin)
    throw new TypeError('the URL must be whole, with {lid} or {urn} in its path or query only')
  if (one.href === other.href) throw new TypeError('the URL must have {lid} or {urn} in its path or query')
  if (one.username !== '' || one.password !== '')
    throw new TypeError('the URL must not hold credentials: they go where URLs are written down')
  return one
}

/** Encoded, so that an identifier is never more than one segment or one value. */
export const expandTemplate = (template: string, { kind, value }: ProfileRef): string =>
  template.replaceAll(/\{(lid|urn)\}/g, (_, name) => (name === kind ? encodeURIComponent(value) : ''))

/** Throws a TypeError that does not repeat the key. */
export const credentials = (key: string): Record<string, string> => {
  const [, name = 'authorization', value = `Bearer ${key}`] = /^([A-Za-z0-9-]{1,64}): ?(.+)$/.exec(key) ?? []
  if (!/^[\x21-\x7e][\x20-\x7e]*$/.test(value))
    throw new TypeError('the key has characters no header may have')
  return { [name.toLowerCase()]: value }
}

const maxAge = (ageMaxMs: number): string => `max-age=${Math.max(0, Math.floor(ageMaxMs / 1000))}`
