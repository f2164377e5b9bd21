import type pg from 'pg'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import type { CompanyResult } from '../contract.ts'
import type { HomePages } from './home-page.ts'

export type Companies = {
  /**
   * Returns the company of a registrable domain (A-labels, lower case), or null. Rejects with `Unavailable` if the database
   * cannot be reached.
   */
  find(registrableDomain: string): Promise<CompanyResult | null>
}

/** If `homePages` is null, no home page is read. */
export const createCompanies = ({
  pool,
  homePages,
}: {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly homePages: HomePages | null
}): Companies => ({
  find: async (domain) => (await readCompany(pool, domain)) ?? homePages?.find(domain) ?? null,
})

/** Reads the imported company of a domain. Throws `Unavailable` if the database cannot be reached. */
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
