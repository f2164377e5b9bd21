/**
 * Finds a company's description of itself on its home page, as a schema.org Organization in JSON-LD. Operators can enable this. Partners
 * choose the hosts, so all requests go through `egress`. If a page fails or is slow, no company is found, but the call does not fail.
 */
import { LRUCache } from 'lru-cache'
import { readJsonLd } from '../../../egress/json-ld.ts'
import type { PageAnswer, PageRequest } from '../../../egress/page.ts'
import type { CompanyResult } from '../contract.ts'
import type { PageOfCompany } from './on-page.ts'
import { registrableDomainOf } from './web-address.ts'

/** `fetchBounded` of `egress`, behind its guard. */
export type FetchPage = (request: PageRequest) => Promise<PageAnswer>

export type HomePages = {
  /** The company named on the home page of a registrable domain, or null. Never rejects because of a page. */
  find(registrableDomain: string): Promise<CompanyResult | null>
}

type HomePagesOptions = {
  readonly fetchPage: FetchPage
  readonly userAgent: string
  readonly clock?: { now(): number }
}

/** The total time limit for both addresses of a home page. */
const homePageTimeMaxMs = 5_000
const rememberedMax = 10_000
/** The time for which the result of a read page is cached, even if no company was found. */
const rememberedMs = 24 * 60 * 60 * 1_000
/** The time for which a failure to fetch a page is cached. The page may be available again soon. */
const rememberedUnreachableMs = 10 * 60 * 1_000
/** The maximum number of concurrent fetches. Above it, no company is found and nothing is cached. */
const fetchesMax = 64
const pageBytesMax = 2 * 1024 * 1024

export const createHomePages = ({
  fetchPage,
  userAgent,
  clock = performance,
}: HomePagesOptions): HomePages => {
  const visit = async (domain: string): Promise<{ company: CompanyResult | null; reached: boolean }> => {
    const deadlineMs = performance.now() + homePageTimeMaxMs
    let reached = false
    let landedOn = ''
    for (const host of [domain, `www.${domain}`]) {
      // On most sites, the first address redirects to the second, so that one fetch is enough.
      if (host === landedOn) break
      const url = `https://${host}/`
      const page = await readPage({ fetchPage, userAgent }, { url, domain, deadlineMs })
      if (page === 'unreachable') continue
      reached = true
      landedOn = new URL(page.url).hostname
      if (page.company !== null) return { company: page.company, reached }
    }
    return { company: null, reached }
  }

  let fetches = 0
  const remembered = new LRUCache<string, { readonly company: CompanyResult | null }>({
    max: rememberedMax,
    ttl: rememberedMs,
    ttlResolution: 0,
    perf: { now: () => clock.now() },
    ignoreFetchAbort: true,
    // Concurrent callers for one domain share the fetch.
    fetchMethod: async (domain, _, { options }) => {
      if (fetches >= fetchesMax) return undefined
      fetches++
      try {
        const { company, reached } = await visit(domain)
        if (!reached) options.ttl = rememberedUnreachableMs
        return { company }
      } finally {
        fetches--
      }
    },
  })
  return { find: async (domain) => (await remembered.fetch(domain))?.company ?? null }
}

type ReadPage = { readonly company: CompanyResult | null; readonly url: string }

const companyReader = new URL('./on-page.ts', import.meta.url)

const readPage = async (
  { fetchPage, userAgent }: Pick<HomePagesOptions, 'fetchPage' | 'userAgent'>,
  { url, domain, deadlineMs }: { url: string; domain: string; deadlineMs: number },
): Promise<ReadPage | 'unreachable'> => {
  const remainingMs = Math.floor(deadlineMs - performance.now())
  if (remainingMs <= 0) return 'unreachable'
  const answer = await fetchPage({
    url,
    headers: { 'user-agent': userAgent, 'accept-language': 'en' },
    accept: ['text/html', 'application/xhtml+xml'],
    deadlineMs: remainingMs,
    wireBytesMax: pageBytesMax,
    decodedBytesMax: pageBytesMax,
    // A page at a different domain does not belong to the company, and a page without TLS could have been changed in transit.
    mayRedirectTo: ({ protocol, hostname }) =>
      protocol === 'https:' && registrableDomainOf(hostname) === domain,
  })
  if (answer.kind !== 'page' || answer.status >= 500 || answer.status === 429) return 'unreachable'
  if (answer.status !== 200) return { company: null, url: answer.url }
  const charset =
    /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(answer.headers['content-type'] ?? '')?.[1] ?? null
  const input: PageOfCompany = { pageUrl: answer.url, domain, nowMs: Date.now() }
  const reader = { module: companyReader, input }
  // If the page cannot be parsed, no company is found. The call must not fail, because it already has its verdict.
  const found = await readJsonLd<CompanyResult | null>(answer.body, { deadlineMs, charset, reader }).catch(
    () => null,
  )
  if (found === null || found.kind === 'too_slow') return 'unreachable'
  return { company: found.kind === 'found' ? found.answer : null, url: answer.url }
}
