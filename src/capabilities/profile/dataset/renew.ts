import type { Pool, PoolClient } from 'pg'
import type { Counted } from '../../../guard/keyed-use.ts'
import { lockDataset, rowHmacsOf } from './import.ts'
import { type DatasetSecrets, openRow, sealRow } from './provider.ts'

/** The data set after a rotation of SECRET_KEY: its rows are found by keyed HMACs, which are made anew from what is sealed in them. */

type Renewing = {
  readonly pool: Pick<Pool, 'connect' | 'query'>
  readonly secrets: DatasetSecrets & {
    readonly identifierUnder: (identifier: string, hmac: string) => string | null
  }
}

/** The table is locked against other writers for one portion. */
const portionMax = 500

type Row = { lid_hmac: string; sealed: string; imported_at: Date }

const portionAfter = `
  select lid_hmac, sealed, imported_at from profile_dataset where lid_hmac > $1 order by lid_hmac limit ${portionMax}`

/** How many rows are under each key. Reads and opens them all. */
export const rowsUnder = async ({ pool, secrets }: Renewing): Promise<ReadonlyMap<string, Counted>> => {
  const found = new Map<string, number>()
  for (let after: string | null = ''; after !== null; ) {
    const { rows }: { rows: Row[] } = await pool.query<Row>(portionAfter, [after])
    for (const row of rows) {
      const person = openedRow(row, secrets)
      const under = person && secrets.identifierUnder(`lid:${person.lid}`, row.lid_hmac)
      if (under) found.set(under, (found.get(under) ?? 0) + 1)
    }
    after = rows.length < portionMax ? null : (rows.at(-1)?.lid_hmac ?? null)
  }
  return new Map([...found].map(([id, count]) => [id, { count, more: false }]))
}

/** Null for a row that no one can open: it answers for no one, under whatever key. */
const openedRow = (row: Row, secrets: DatasetSecrets) => {
  try {
    return openRow(row, secrets)
  } catch {
    return null
  }
}

/**
 * Makes the rows after a place anew. The table is locked as for an import, so that an erasure has deleted a row before or finds it
 * afterwards, and a person who was suppressed meanwhile is not written again.
 */
export const renewPortion = async (
  { pool, secrets }: Renewing,
  after: string,
): Promise<{ renewed: number; next: string | null }> => {
  const client = await pool.connect()
  let broken: Error | undefined
  try {
    await client.query('begin')
    await client.query(lockDataset)
    const done = await renewRows(client, secrets, after)
    await client.query('commit')
    return done
  } catch (error) {
    broken = error instanceof Error ? error : new Error('the data set is not renewed', { cause: error })
    throw error
  } finally {
    // A connection in a transaction that failed is closed, not reused.
    client.release(broken)
  }
}

const renewRows = async (
  client: PoolClient,
  secrets: DatasetSecrets,
  after: string,
): Promise<{ renewed: number; next: string | null }> => {
  const { rows } = await client.query<Row>(portionAfter, [after])
  const stale = rows.flatMap((row) => {
    const person = openedRow(row, secrets)
    if (person === null) return []
    const [lid, urn] = rowHmacsOf(person, secrets)
    return lid === row.lid_hmac ? [] : [{ row, person, lid, urn }]
  })
  const sealed = await Promise.all(stale.map(({ person, lid }) => sealRow(person, lid, secrets)))
  await client.query('delete from profile_dataset where lid_hmac = any ($1::text[])', [
    stale.map(({ row }) => row.lid_hmac),
  ])
  // One that is there was imported since, and is newer.
  await client.query(
    `insert into profile_dataset (lid_hmac, urn_hmac, sealed, imported_at)
     select lid_hmac, urn_hmac, sealed, imported_at
       from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[])
            as given (lid_hmac, urn_hmac, sealed, imported_at, former)
      where not exists (select from profile_suppressions s where s.hmac in (lid_hmac, urn_hmac, former))
     on conflict do nothing`,
    [
      ...[stale.map(({ lid }) => lid), stale.map(({ urn }) => urn), sealed],
      ...[stale.map(({ row }) => row.imported_at), stale.map(({ row }) => row.lid_hmac)],
    ],
  )
  return {
    renewed: stale.length,
    next: rows.length < portionMax ? null : (rows.at(-1)?.lid_hmac ?? null),
  }
}
