/**
 * What a company says about itself on its home page, as a schema.org Organization in JSON-LD: the second source, off unless
 * the operator switches it on. It sends requests to hosts that strangers name, so everything goes through the egress room.
 *
 * A page that is down, slow or silent is no company found and never an error: no home page owes us anything.
 */
import { LRUCache } from 'lru-cache'
import {
  extractJsonLd,
  isJsonObject,
  type JsonObject,
  listOf,
  textOf,
  typesOf,
} from '../../egress/json-ld.ts'
import type { PageAnswer, PageRequest } from '../../egress/page.ts'
import { type CompanyRecord, companyOf, profnetUrlAmong, registrableDomainOf } from './company-record.ts'

/** `fetchBounded` of the egress room behind its door. */
export type FetchPage = (request: PageRequest) => Promise<PageAnswer>

export type HomePages = {
  /** What the home page of a registrable domain says, or null. Never rejects for what a page does. */
  find(registrableDomain: string): Promise<CompanyRecord | null>
}

export type HomePagesOptions = {
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
/** Of a page's nodes, and of what they are published by or are about. */
const organizationsMax = 50

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
      const page = await readPage({ fetchPage, userAgent }, { url: `https://${host}/`, domain, deadlineMs })
      if (page === 'unreachable') continue
      reached = true
      landedOn = new URL(page.url).hostname
      const company = companyOnPage(page, { domain, nowMs: Date.now() })
      if (company === null) continue
      remembered.set(domain, { company })
      return company
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

/** A page's nodes and where it was found after redirects. */
type ReadPage = { readonly nodes: readonly JsonObject[]; readonly url: string }

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
  if (answer.status !== 200) return { nodes: [], url: answer.url }
  const charset =
    /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(answer.headers['content-type'] ?? '')?.[1] ?? null
  // A page that cannot be looked into now says nothing; the call has its verdict already.
  const found = await extractJsonLd(answer.body, { deadlineMs, charset }).catch(() => null)
  if (found === null || found.kind === 'too_slow') return 'unreachable'
  return { nodes: found.kind === 'found' ? found.nodes : [], url: answer.url }
}

/** The company a page is about: of the organizations that say they live at this domain, the one that says most. */
export const companyOnPage = (
  { nodes, url }: ReadPage,
  { domain, nowMs }: { readonly domain: string; readonly nowMs: number },
): CompanyRecord | null => {
  const now = new Date(nowMs)
  const companies = organizationsAmong(nodes)
    .filter((node) => livesAt(node, { domain, pageUrl: url }))
    .flatMap((node) => {
      const found = companyOf(recordOf(node, { domain, pageUrl: url }), {
        source: 'home_page',
        sourceUpdatedAt: now.toISOString(),
        yearMax: now.getUTCFullYear(),
      })
      return 'refused' in found ? [] : [found]
    })
    .sort((a, b) => b.preference - a.preference)
  return companies[0]?.company ?? null
}

/** Organization and those of its subtypes (schema.org 29) that home pages use; a `…Organization`, `…Business` or `…Store` is one by its name. */
const organizationTypes = new Set(
  (
    'Organization Corporation Airline Consortium Cooperative EducationalOrganization CollegeOrUniversity School HighSchool ' +
    'LibrarySystem NGO OnlineBusiness OnlineStore PerformingGroup Project ResearchOrganization SportsTeam WorkersUnion ' +
    'AnimalShelter ArchiveOrganization AutoDealer AutoRepair Bakery BankOrCreditUnion BarOrPub BeautySalon CafeOrCoffeeShop ' +
    'ChildCare Dentist Electrician EmploymentAgency FastFoodRestaurant FinancialService FoodEstablishment ' +
    'GeneralContractor GovernmentOffice HVACBusiness HealthClub HomeAndConstructionBusiness Hospital Hotel ' +
    'InsuranceAgency LegalService Library LodgingBusiness MedicalClinic MovingCompany Notary Pharmacy Physician Plumber ' +
    'ProfessionalService RadioStation RealEstateAgent Resort Restaurant RoofingContractor ShoppingCenter Store ' +
    'TelevisionStation TravelAgency VeterinaryCare Attorney AccountingService'
  ).split(' '),
)

const isOrganization = (node: JsonObject): boolean =>
  typesOf(node).some(
    (type) => organizationTypes.has(type) || /^[A-Za-z]{1,40}(Organization|Business|Store)$/.test(type),
  )

/** Members through which a page or site names the organization behind it. */
const organizationMembers = ['publisher', 'mainEntity', 'about', 'copyrightHolder', 'provider'] as const

const organizationsAmong = (nodes: readonly JsonObject[]): JsonObject[] => {
  const nested = nodes.flatMap((node) =>
    organizationMembers.flatMap((member) => listOf(node[member]).slice(0, organizationsMax)),
  )
  return [...nodes, ...nested].filter(isJsonObject).filter(isOrganization).slice(0, organizationsMax)
}

/** By its `url`, or by its `@id` where it has none. A page may describe any organization; this one has to be its own. */
const livesAt = (node: JsonObject, { domain, pageUrl }: { domain: string; pageUrl: string }): boolean => {
  const stated = textOf(node.url) || textOf(node['@id'])
  const host = !stated || stated.startsWith('_:') ? null : URL.parse(stated.trim(), pageUrl)?.hostname
  return host !== undefined && host !== null && registrableDomainOf(host) === domain
}

/** In the members that imported records have, so that the same limits hold for both. */
const recordOf = (node: JsonObject, { domain, pageUrl }: { domain: string; pageUrl: string }): JsonObject => {
  const address = listOf(node.address).find(isJsonObject) ?? {}
  const logo = [...listOf(node.logo), ...listOf(node.image)][0]
  const logoUrl = isJsonObject(logo) ? (textOf(logo.url) ?? textOf(logo.contentUrl)) : textOf(logo)
  const website = textOf(node.url)
  return {
    name: textOf(node.name) ?? textOf(node.legalName),
    legal_name: textOf(node.legalName),
    domain,
    website: website === null ? new URL(pageUrl).origin : absoluteUrl(website, pageUrl),
    founded: textOf(node.foundingDate),
    ...employeesOf(node.numberOfEmployees),
    industry: textOf(node.industry),
    locality: textOf(address.addressLocality),
    region: nameOf(address.addressRegion),
    country: nameOf(address.addressCountry),
    profnet_url: profnetUrlAmong(listOf(node.sameAs).slice(0, organizationsMax)),
    logo_url: logoUrl === null ? null : absoluteUrl(logoUrl, pageUrl),
  }
}

const absoluteUrl = (text: string, base: string): string | null => URL.parse(text.trim(), base)?.href ?? null

/** A text, or the name of a Country or State. */
const nameOf = (value: unknown): string | null => {
  const [first] = listOf(value)
  return isJsonObject(first) ? (textOf(first.name) ?? textOf(first)) : textOf(first)
}

/** A number, or a QuantitativeValue with a value or with bounds. */
const employeesOf = (value: unknown): JsonObject => {
  const [first] = listOf(value)
  if (!isJsonObject(first)) return { employee_count: textOf(first), size: textOf(first) }
  const [exact, min, max] = [textOf(first.value), textOf(first.minValue), textOf(first.maxValue)]
  const bounds = min === null ? null : max === null ? `${min}+` : `${min}-${max}`
  return { employee_count: exact, size: exact ?? bounds }
}
