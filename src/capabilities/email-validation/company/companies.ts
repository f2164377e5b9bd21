/**
 * Finds the company to which a domain belongs, first in imported data and then, if an operator has enabled it, on the domain's home page.
 *
 * If the database is unavailable, the call fails (503). Otherwise, partners would store a wrong `not_found`.
 */
import { LRUCache } from 'lru-cache'
import type pg from 'pg'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { Unavailable } from '../../../event-log/port.ts'
import type { CompanyResult } from '../contract.ts'
import type { HomePages } from './home-page.ts'

export type Companies = {
  /**
   * Returns the company of a registrable domain (A-labels, lower case), or null. Rejects with `Unavailable` if the database
   * cannot be reached.
   */
  find(registrableDomain: string): Promise<CompanyResult | null>
}

/** Companies and their absence are cached, so that many addresses at one domain cost one query. */
const rememberedMax = 10_000
/** The time for which companies are cached. An import takes effect within this time. */
const rememberedMs = 60_000
const lookupsMax = 1_000

/** If `homePages` is null, no home page is read. `clock` is in milliseconds. */
export const createCompanies = ({
  pool,
  homePages,
  clock = performance,
}: {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly homePages: HomePages | null
  readonly clock?: { now(): number }
}): Companies => {
  let lookups = 0
  const remembered = new LRUCache<string, { readonly company: CompanyResult | null }>({
    max: rememberedMax,
    ttl: rememberedMs,
    ttlResolution: 0,
    perf: { now: () => clock.now() },
    ignoreFetchAbort: true,
    // Concurrent callers for one domain share the query. A failure is not cached.
    fetchMethod: async (domain) => {
      if (lookups >= lookupsMax)
        throw new Unavailable(`${lookupsMax} look-ups of companies are already in progress`)
      lookups++
      try {
        return { company: await readCompany(pool, domain) }
      } finally {
        lookups--
      }
    },
  })

  const find = async (domain: string): Promise<CompanyResult | null> =>
    (await remembered.forceFetch(domain)).company ??
    (homePages === null ? null : await homePages.find(domain))

  return { find }
}

/** Reads the company of a domain without the cache. Throws `Unavailable` if the database cannot be reached. */
export const readCompany = async (
  pool: Pick<pg.Pool, 'query'>,
  domain: string,
): Promise<CompanyResult | null> => {
  const { rows } = await pool
    .query<Omit<CompanyResult, 'source_updated_at'> & { source_updated_at: Date }>({
      name: 'company_by_domain',
      text: `select name, legal_name, domain, website, industry, size_range, employee_count, founded_year,
                    json_build_object('locality', locality, 'region', region, 'country', country, 'country_code', country_code) as location,
                    profnet_url, logo_url, source, source_updated_at
               from companies where domain = $1`,
      values: [domain],
    })
    .catch(unavailableWhenAway)
  const [row] = rows
  return row === undefined ? null : { ...row, source_updated_at: row.source_updated_at.toISOString() }
}
