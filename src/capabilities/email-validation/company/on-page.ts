/** Finds the company in a home page's JSON-LD. Pure. Runs in the thread that parses the page, so that a malicious page cannot delay calls. */
import {
  isJsonObject,
  type JsonObject,
  listOf,
  type ReadNodes,
  textOf,
  typesOf,
} from '../../../egress/json-ld-nodes.ts'
import type { CompanyResult } from '../contract.ts'
import { companyOf, profnetUrlAmong } from './record.ts'
import { registrableDomainOf } from './web-address.ts'

/** The maximum number of items that are read from a list, such as a page's nodes or a node's publishers. */
const organizationsMax = 50

/** `pageUrl` is the page's address after redirects. */
export type PageOfCompany = { readonly domain: string; readonly pageUrl: string; readonly nowMs: number }

/** Returns the company that a page is about. If several organizations name this domain as theirs, the one with the most data counts. */
export const read: ReadNodes<PageOfCompany, CompanyResult | null> = (nodes, { domain, pageUrl, nowMs }) => {
  const now = new Date(nowMs)
  const companies = organizationsAmong(nodes)
    .filter((node) => livesAt(node, { domain, pageUrl }))
    .flatMap((node) => {
      const found = companyOf(recordOf(node, { domain, pageUrl }), {
        source: 'home_page',
        sourceUpdatedAt: now.toISOString(),
        yearMax: now.getUTCFullYear(),
      })
      return 'refused' in found ? [] : [found]
    })
    .sort((a, b) => b.preference - a.preference)
  return companies[0]?.company ?? null
}

/**
 * Organization and the subtypes (schema.org 29) that home pages use. Other types also count if they end in Organization, Business or Store.
 */
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

/** The members in which a page or site names its organization. */
const organizationMembers = ['publisher', 'mainEntity', 'about', 'copyrightHolder', 'provider'] as const

const organizationsAmong = (nodes: readonly JsonObject[]): JsonObject[] => {
  const nested = nodes.flatMap((node) =>
    organizationMembers.flatMap((member) => listOf(node[member]).slice(0, organizationsMax)),
  )
  return [...nodes, ...nested].filter(isJsonObject).filter(isOrganization).slice(0, organizationsMax)
}

/** A page can describe any organization. It counts only if its `url`, or else its `@id`, is at the domain. */
const livesAt = (node: JsonObject, { domain, pageUrl }: { domain: string; pageUrl: string }): boolean => {
  const stated = textOf(node.url) || textOf(node['@id'])
  const host = !stated || stated.startsWith('_:') ? null : URL.parse(stated.trim(), pageUrl)?.hostname
  return host !== undefined && host !== null && registrableDomainOf(host) === domain
}

/** Uses the field names of imported records, so that the same limits apply to both. */
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

const nameOf = (value: unknown): string | null => {
  const [first] = listOf(value)
  return isJsonObject(first) ? (textOf(first.name) ?? textOf(first)) : textOf(first)
}

const employeesOf = (value: unknown): JsonObject => {
  const [first] = listOf(value)
  if (!isJsonObject(first)) return { employee_count: textOf(first), size: textOf(first) }
  const [exact, min, max] = [textOf(first.value), textOf(first.minValue), textOf(first.maxValue)]
  const bounds = min === null ? null : max === null ? `${min}+` : `${min}-${max}`
  return { employee_count: exact, size: exact ?? bounds }
}
