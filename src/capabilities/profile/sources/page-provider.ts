import type { ReadJsonLd } from '../../../egress/json-ld.ts'
import { canonicalLid, type Identifiers } from '../identifier.ts'
import type { MappedProfile } from '../mapping/mapping.ts'
import { expandTemplate, found, parseTemplate, type Source } from './http-provider.ts'
import {
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
import type { PageOfPerson, PersonOnPage } from './person-on-page.ts'
import type { ProviderAnswer } from './provider.ts'

/**
 * The public page of a profile, if it describes a person in JSON-LD. Off by default. A URN leads to no page.
 */

const pageTypes = ['text/html', 'application/xhtml+xml'] as const

export const createPageProvider = ({
  url,
  identifiers,
  timeoutMs = attemptTimeoutMsDefault,
  fetchPage,
  readJsonLd: readPage,
  clock,
  logger,
}: {
  /** With `{lid}` in its path or query. */
  url: string
  identifiers: Identifiers
  /** The time limit of one attempt. */
  timeoutMs?: number
  fetchPage: FetchPage
  readJsonLd: ReadJsonLd
  /** `now` as `performance.now()`, `epochMs` as `Date.now()`. */
  clock: { now: () => number; epochMs: () => number }
  logger: Logger
}): Source => {
  const template = parseTemplate(url)
  if (!url.includes('{lid}')) throw new TypeError('the URL must have {lid} in its path or query')
  const forbiddenWatch = createForbiddenWatch({ provider: 'page', logger, now: clock.now })
  return {
    name: 'page',
    supports: ({ kind }) => kind === 'lid',
    fetch: async (ref, { deadlineMs, ageMaxMs, signal }) => {
      if (ref.kind !== 'lid') return { kind: 'unsupported' }
      const asked = expandTemplate(url, ref)
      const page = await fetchWithRetry(
        fetchPage,
        {
          url: asked,
          accept: pageTypes,
          // Profiles move between the hosts of countries and languages, all of which belong to the network.
          mayRedirectTo: (target) =>
            isSameHost(template, target) ||
            (target.protocol === 'https:' && identifiers.parse(target.href) !== null),
        },
        { deadlineMs, timeoutMs, signal, now: clock.now },
      )
      if (page.kind !== 'page') return answerOfNoPage(page)
      const nowMs = clock.epochMs()
      const answer = forbiddenWatch(page, answerOfStatus(page, nowMs))
      if (answer !== null) return answer
      const lid = page.url === asked ? ref.value : lidOfPage(page, url, identifiers)
      const mapped = await readPerson(page, { lid, deadlineMs, identifiers, readPage })
      if ('kind' in mapped) return mapped
      return found({ ...mapped, lid: mapped.lid ?? lid }, { ref, page, ageMaxMs, nowMs, bodyAgeMs: 0 })
    },
  }
}

/** The owner of the page we were redirected to; null if its address does not show it. */
const lidOfPage = (page: Page, template: string, identifiers: Identifiers): string | null => {
  const ref = identifiers.parse(page.url)
  if (ref?.kind === 'lid') return ref.value
  const [before = '', after = ''] = template.split('{lid}')
  const isOurs = page.url.startsWith(before) && page.url.endsWith(after)
  return isOurs ? canonicalLid(page.url.slice(before.length, page.url.length - after.length)) : null
}

const personReader = new URL('./person-on-page.ts', import.meta.url)

const readPerson = async (
  page: Page,
  {
    lid,
    deadlineMs,
    identifiers,
    readPage,
  }: {
    lid: string | null
    deadlineMs: number
    identifiers: Identifiers
    readPage: ReadJsonLd
  },
): Promise<MappedProfile | ProviderAnswer> => {
  const charset = /;\s*charset\s*=\s*"?([^\s";]{1,40})/i.exec(page.headers['content-type'] ?? '')?.[1] ?? null
  const input: PageOfPerson = { lid, network: identifiers.network }
  const reader = { module: personReader, input }
  const read = await readPage<PersonOnPage>(page.body, { deadlineMs, charset, reader })
  if (read.kind === 'too_slow') return { kind: 'transient', detail: 'the page took too long to read' }
  if (read.kind !== 'found') return { kind: 'malformed', detail: `JSON-LD: ${read.kind}` }
  if (typeof read.answer === 'string') return { kind: 'malformed', detail: read.answer }
  return read.answer
}
