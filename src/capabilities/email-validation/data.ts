import { stat } from 'node:fs/promises'
import type pg from 'pg'
import type { DataSource } from '../../call/data-source.ts'
import { listsAgeDaysMax, listsDayMs, listsRemedy } from './lists/age.ts'
import { listPath, readRefreshed, vendoredListFolder } from './lists/file.ts'
import { vendoredDomains } from './lists/listed-domains.ts'
import { disposableLists } from './lists/packages.ts'
import { roleCount } from './lists/roles.ts'

/** What e-mail validation rests on: lists of domains and role names, and companies. */

const grouped = (value: number): string => value.toLocaleString('en-US')

/** Counted one by one up to here; beyond it PostgreSQL's own estimate is told. */
const countedMax = 100_000

export const emailData = async ({ pool }: { readonly pool: pg.Pool }): Promise<readonly DataSource[]> => [
  ...(await lists()),
  await companies(pool),
]

const lists = async (): Promise<readonly DataSource[]> => {
  const { curated, raw } = vendoredDomains()
  const refreshed = (name: 'disposable' | 'free'): boolean => readRefreshed(vendoredListFolder, name) !== null
  const asOf = new Date(listsDayMs())
  const of = { place: 'host', imported: null, asOf, ageDaysMax: listsAgeDaysMax } as const
  const from = async (name: 'disposable' | 'free', packages: string): Promise<string> =>
    refreshed(name)
      ? `"lists refresh", written ${(await stat(listPath(vendoredListFolder, name))).mtime.toISOString().slice(0, 10)}`
      : `the packages ${packages}`
  return [
    {
      ...{ ...of, name: 'Disposable domains', version: null, remedy: listsRemedy },
      from: await from('disposable', Object.keys(disposableLists).join(', ')),
      holds: `${grouped(raw.disposable.size)} domains`,
    },
    {
      ...{ ...of, name: 'Free-mail domains', version: null, remedy: listsRemedy },
      from: await from('free', 'email-providers'),
      holds: `${grouped(raw.free.size)} domains`,
    },
    {
      ...{ ...of, name: 'Curated domains', version: null, asOf: null, ageDaysMax: null, remedy: null },
      from: 'this release',
      holds: `${grouped(curated.size)} providers, relays and businesses`,
    },
    {
      ...{ ...of, name: 'Role names', version: null, asOf: null, ageDaysMax: null, remedy: null },
      from: 'this release',
      holds: `${grouped(roleCount)} names`,
    },
  ]
}

const companies = async (pool: pg.Pool): Promise<DataSource> => {
  const { rows } = await pool.query<{ n: number; newest: Date | null; sources: string | null; all: string }>(
    `select count(*)::int as n, max(source_updated_at) as newest,
            string_agg(distinct left(source, 100), ', ') as sources,
            (select greatest(reltuples, 0)::bigint::text from pg_class where oid = 'companies'::regclass) as all
       from (select source, source_updated_at from companies limit $1) c`,
    [countedMax + 1],
  )
  const { n, newest, sources, all } = rows[0] ?? { n: 0, newest: null, sources: null, all: '0' }
  return {
    ...{ name: 'Companies', place: 'installation', imported: 'companies', version: null, ageDaysMax: null },
    from: sources ?? 'nothing was imported',
    holds:
      n > countedMax ? `about ${grouped(Math.max(n, Number(all)))} companies` : `${grouped(n)} companies`,
    asOf: newest,
    remedy: n === 0 ? '"companies import" takes in a file; without one no company is found.' : null,
  }
}
