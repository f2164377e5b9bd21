/**
 * A company's description of itself on its home page, as a schema.org Organization in JSON-LD: the second source, off unless
 * the operator switches it on. It sends requests to hosts named by strangers, so all requests go through `egress`.
 *
 * If a page is down, slow or silent, no company is found. It is never an error: home pages owe us nothing.
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
  /** Names this service and a contact address. */
  readonly userAgent: string
  /** How long a page is cached, in milliseconds of a monotonic clock. */
  readonly clock?: { now(): number }
}

/** For both addresses of a home page, including reading. A call waits for this. */
const homePageTimeMaxMs = 5_000
const rememberedMax = 10_000
/** The page was read, and it named a company or none. */
const rememberedMs = 24 * 60 * 60 * 1_000
/** The page could not be fetched: it may be up again soon. */
const rememberedUnreachableMs = 10 * 60 * 1_000
/** Pages fetched at the same time. Beyond this limit, the answer is "unknown" and nothing is cached. */
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
      // On most sites the first address redirects to the second; one fetch is enough.
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

/** The company a page is about, and the page's address after redirects. */
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
    // A page of another domain does not count as this domain's own, and without TLS anyone on the way could have changed it.
    mayRedirectTo: ({ protocol, hostname }) =>
      protocol === 'https:' && registrableDomainOf(hostname) === domain,
  })
  // If only the other address answers, or a proxy is in trouble, a later attempt may help.
  if (answer.kind !== 'page' || answer.status >= 500 || answer.status === 429) return 'unreachable'
  if (answer.status !== 200) return { company: null, url: answer.url }
  const charset =
    /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(answer.headers['content-type'] ?? '')?.[1] ?? null
  const input: PageOfCompany = { pageUrl: answer.url, domain, nowMs: Date.now() }
  const reader = { module: companyReader, input }
  // If the page cannot be parsed now, no company is found; the call already has its verdict.
  const found = await readJsonLd<CompanyRecord | null>(answer.body, { deadlineMs, charset, reader }).catch(
    () => null,
  )
  if (found === null || found.kind === 'too_slow') return 'unreachable'
  return { company: found.kind === 'found' ? found.answer : null, url: answer.url }
}
