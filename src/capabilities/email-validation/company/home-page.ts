/**
 * Finds a company's description of itself on its home page, as a schema.org Organization in JSON-LD. Operators switch this on. Strangers choose
 * the hosts, so all requests go through `egress`. If a page fails or is slow, no company is found, and the call does not fail.
 */
import { LRUCache } from 'lru-cache'
import { readJsonLd } from '../../../egress/json-ld.ts'
import type { PageAnswer, PageRequest } from '../../../egress/page.ts'
import type { PageOfCompany } from './on-page.ts'
import type { CompanyRecord } from './record.ts'
import { registrableDomainOf } from './web-address.ts'

/** `fetchBounded` of `egress`, behind its guard. */
export type FetchPage = (request: PageRequest) => Promise<PageAnswer>

export type HomePages = {
  /** The company named on the home page of a registrable domain, or null. Never rejects because of a page. */
  find(registrableDomain: string): Promise<CompanyRecord | null>
}

type HomePagesOptions = {
  readonly fetchPage: FetchPage
  readonly userAgent: string
  readonly clock?: { now(): number }
}

/** The limit for both addresses of a home page together. */
const homePageTimeMaxMs = 5_000
const rememberedMax = 10_000
/** How long the result of a page that was read is cached, even if no company was found. */
const rememberedMs = 24 * 60 * 60 * 1_000
/** How long a failure to fetch a page is cached. The page may be available again soon. */
const rememberedUnreachableMs = 10 * 60 * 1_000
/** Pages fetched at the same time. If there are more, no company is found and nothing is cached. */
const fetchesMax = 64
const pageBytesMax = 2 * 1024 * 1024

export const createHomePages = ({
  fetchPage,
  userAgent,
  clock = performance,
}: HomePagesOptions): HomePages => {
  const remembered = new LRUCache<string, { readonly company: CompanyRecord | null }>({
    max: rememberedMax,
    ttl: rememberedMs,
    ttlResolution: 0,
    perf: { now: () => clock.now() },
  })
  const underWay = new Map<string, Promise<CompanyRecord | null>>()

  const visit = async (domain: string): Promise<CompanyRecord | null> => {
    const deadlineMs = performance.now() + homePageTimeMaxMs
    let reached = false
    let landedOn = ''
    for (const host of [domain, `www.${domain}`]) {
      // On most sites the first address redirects to the second, so one fetch is enough.
      if (host === landedOn) break
      const url = `https://${host}/`
      const page = await readPage({ fetchPage, userAgent }, { url, domain, deadlineMs })
      if (page === 'unreachable') continue
      reached = true
      landedOn = new URL(page.url).hostname
      if (page.company === null) continue
      remembered.set(domain, { company: page.company })
      return page.company
    }
    remembered.set(domain, { company: null }, reached ? {} : { ttl: rememberedUnreachableMs })
    return null
  }

  return {
    find: (domain) => {
      const known = remembered.get(domain)
      if (known !== undefined) return Promise.resolve(known.company)
      const running = underWay.get(domain)
      if (running !== undefined) return running
      if (underWay.size >= fetchesMax) return Promise.resolve(null)
      const visiting = visit(domain).finally(() => underWay.delete(domain))
      underWay.set(domain, visiting)
      return visiting
    },
  }
}

type ReadPage = { readonly company: CompanyRecord | null; readonly url: string }

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
  const found = await readJsonLd<CompanyRecord | null>(answer.body, { deadlineMs, charset, reader }).catch(
    () => null,
  )
  if (found === null || found.kind === 'too_slow') return 'unreachable'
  return { company: found.kind === 'found' ? found.answer : null, url: answer.url }
}
