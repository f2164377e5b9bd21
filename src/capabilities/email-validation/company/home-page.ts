/**
 * What a company says about itself on its home page, as a schema.org Organization in JSON-LD: the second source, off unless
 * the operator switches it on. It sends requests to hosts that strangers name, so everything goes through `egress`.
 *
 * A page that is down, slow or silent is no company found and never an error: no home page owes us anything.
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
  /** What the home page of a registrable domain says, or null. Never rejects for what a page does. */
  find(registrableDomain: string): Promise<CompanyRecord | null>
}

type HomePagesOptions = {
  readonly fetchPage: FetchPage
  /** Names this service and whom to write to. */
  readonly userAgent: string
  /** How long a page is remembered, in milliseconds of a clock that nobody sets. */
  readonly clock?: { now(): number }
}

/** For both addresses of a home page, reading included. A call waits for this. */
const homePageTimeMaxMs = 5_000
const rememberedMax = 10_000
/** What a page said, or that it said nothing. */
const rememberedMs = 24 * 60 * 60 * 1_000
/** That a page could not be had: it may be up again soon. */
const rememberedUnreachableMs = 10 * 60 * 1_000
/** Pages fetched at once. Beyond, nothing is known and nothing remembered. */
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
      // The first one leads to the second on most sites; once is enough.
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

/** The company a page is about, and where the page was found after redirects. */
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
    // What another domain says is not what this one says, and without TLS anybody on the way says it.
    mayRedirectTo: ({ protocol, hostname }) =>
      protocol === 'https:' && registrableDomainOf(hostname) === domain,
  })
  // Where only the other address answers, or a proxy is in trouble, asking again later may help.
  if (answer.kind !== 'page' || answer.status >= 500 || answer.status === 429) return 'unreachable'
  if (answer.status !== 200) return { company: null, url: answer.url }
  const charset =
    /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(answer.headers['content-type'] ?? '')?.[1] ?? null
  const input: PageOfCompany = { pageUrl: answer.url, domain, nowMs: Date.now() }
  const reader = { module: companyReader, input }
  // A page that cannot be looked into now says nothing; the call has its verdict already.
  const found = await readJsonLd<CompanyRecord | null>(answer.body, { deadlineMs, charset, reader }).catch(
    () => null,
  )
  if (found === null || found.kind === 'too_slow') return 'unreachable'
  return { company: found.kind === 'found' ? found.answer : null, url: answer.url }
}
