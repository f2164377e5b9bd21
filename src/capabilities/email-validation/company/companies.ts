/**
 * Finds the company that a domain belongs to, first in operators' imports and then, if that is switched on, on its home page.
 *
 * If the database is unavailable, the call fails (503), because partners would store a wrong `not_found`.
 */
import { LRUCache } from 'lru-cache'
import pg from 'pg'
import { isDatabaseAway } from '../../../call/unavailable.ts'
import { Unavailable } from '../../../event-log/port.ts'
import type { HomePages } from './home-page.ts'
import type { CompanyRecord, SizeRange } from './record.ts'

export type Companies = {
  /**
   * Returns the company of a registrable domain (A-labels, lower case), or null. Rejects with `Unavailable` if the database
   * cannot be reached.
   */
  find(registrableDomain: string): Promise<CompanyRecord | null>
}

/** Companies and their absence are cached, so that many addresses at one domain cost one query. */
const rememberedMax = 10_000
/** Companies are cached for this long, so an import takes effect within this time. */
const rememberedMs = 60_000
const lookupsMax = 1_000

/** No home page is read if `homePages` is null. `clock` is in milliseconds. */
export const createCompanies = ({
  pool,
  homePages,
  clock = performance,
}: {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly homePages: HomePages | null
  readonly clock?: { now(): number }
}): Companies => {
  const remembered = new LRUCache<string, { readonly company: CompanyRecord | null }>({
    max: rememberedMax,
    ttl: rememberedMs,
    ttlResolution: 0,
    perf: { now: () => clock.now() },
  })
  const underWay = new Map<string, Promise<CompanyRecord | null>>()

  const lookUp = async (domain: string): Promise<CompanyRecord | null> => {
    const company = await readCompany(pool, domain)
    remembered.set(domain, { company })
    return company
  }

  const imported = (domain: string): Promise<CompanyRecord | null> => {
    const known = remembered.get(domain)
    if (known !== undefined) return Promise.resolve(known.company)
    const running = underWay.get(domain)
    if (running !== undefined) return running
    if (underWay.size >= lookupsMax)
      return Promise.reject(new Unavailable(`${lookupsMax} companies are already being looked up`))
    const lookup = lookUp(domain).finally(() => underWay.delete(domain))
    underWay.set(domain, lookup)
    return lookup
  }

  const find = async (domain: string): Promise<CompanyRecord | null> =>
    (await imported(domain)) ?? (homePages === null ? null : await homePages.find(domain))

  return { find }
}

type Row = Omit<CompanyRecord, 'location' | 'source_updated_at'> &
  CompanyRecord['location'] & { readonly size_range: SizeRange | null; readonly source_updated_at: Date }

/** Reads the company of a domain without the cache. Throws `Unavailable` if the database cannot be reached. */
export const readCompany = async (
  pool: Pick<pg.Pool, 'query'>,
  domain: string,
): Promise<CompanyRecord | null> => {
  const { rows } = await pool
    .query<Row>({
      name: 'company_by_domain',
      text: `select domain, name, legal_name, website, industry, size_range, employee_count, founded_year, locality, region,
                    country, country_code, profnet_url, logo_url, source, source_updated_at
               from companies where domain = $1`,
      values: [domain],
    })
    .catch((error: unknown) => {
      if (isFaultOfOurs(error)) throw error
      throw new Unavailable('the companies cannot be read', { cause: error })
    })
  const [row] = rows
  if (row === undefined) return null
  const { locality, region, country, country_code } = row
  return {
    name: row.name,
    legal_name: row.legal_name,
    domain: row.domain,
    website: row.website,
    industry: row.industry,
    size_range: row.size_range,
    employee_count: row.employee_count,
    founded_year: row.founded_year,
    location: { locality, region, country, country_code },
    profnet_url: row.profnet_url,
    logo_url: row.logo_url,
    source: row.source,
    source_updated_at: row.source_updated_at.toISOString(),
  }
}

/** True if the database refused the statement, so that the statement or the schema is wrong. */
const isFaultOfOurs = (error: unknown): boolean => error instanceof pg.DatabaseError && !isDatabaseAway(error)
