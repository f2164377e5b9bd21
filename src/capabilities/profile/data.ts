import type pg from 'pg'
import type { DataSource } from '../../call/data-source.ts'
import type { ProfileSettings } from './settings.ts'

/** What profiles rest on: the data set, what was fetched of sources, and who is never asked about. */

/** Counted one by one up to here. */
const countedMax = 100_000

const holds = (n: number, what: string): string =>
  `${n > countedMax ? `more than ${countedMax.toLocaleString('en-US')}` : n.toLocaleString('en-US')} ${what}`

type Counted = { readonly n: number; readonly newest: Date | null }

const counted = async (
  pool: pg.Pool,
  of: 'profile_dataset' | 'profile_cache' | 'profile_suppressions',
  column: 'imported_at' | 'fetched_at' | 'suppressed_at',
): Promise<Counted> => {
  const { rows } = await pool.query<Counted>(
    `select count(*)::int as n, max(${column}) as newest from (select ${column} from ${of} limit $1) t`,
    [countedMax + 1],
  )
  return rows[0] ?? { n: 0, newest: null }
}

/** Where a source is: an address may hold a secret in its path. */
const sourcesText = ({ PROFILE_PROVIDER, PROFILE_HTTP_URL, PROFILE_PAGE_URL }: ProfileSettings): string => {
  const host = (url: string | undefined): string => URL.parse(url ?? '')?.host ?? 'no address'
  const texts = {
    dataset: 'the data set',
    http: `the source at ${host(PROFILE_HTTP_URL)}`,
    page: `pages of ${host(PROFILE_PAGE_URL)}`,
  } as const
  return PROFILE_PROVIDER.map((name) => texts[name]).join(', then ')
}

export const profileData = async ({
  pool,
  settings,
}: {
  readonly pool: pg.Pool
  readonly settings: ProfileSettings
}): Promise<readonly DataSource[]> => {
  const [dataset, cache, suppressions] = await Promise.all([
    counted(pool, 'profile_dataset', 'imported_at'),
    counted(pool, 'profile_cache', 'fetched_at'),
    counted(pool, 'profile_suppressions', 'suppressed_at'),
  ])
  const of = { place: 'installation', version: null, ageDaysMax: null } as const
  const asked = settings.PROFILE_PROVIDER.includes('dataset')
  return [
    {
      ...{ ...of, name: 'Data set of people', imported: 'profiles', asOf: dataset.newest },
      from: asked ? 'files that were imported' : 'files that were imported; PROFILE_PROVIDER does not ask it',
      holds: holds(dataset.n, 'people'),
      remedy: asked && dataset.n === 0 ? '"profiles import" takes people in.' : null,
    },
    {
      ...{ ...of, name: 'Profiles kept', imported: null, asOf: cache.newest, remedy: null },
      from: sourcesText(settings),
      holds: holds(cache.n, 'profiles'),
    },
    {
      ...{ ...of, name: 'Suppressed identifiers', imported: null, asOf: suppressions.newest, remedy: null },
      from: '"profiles erase"',
      holds: holds(suppressions.n, 'identifiers'),
    },
  ]
}
