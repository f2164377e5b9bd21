import type pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import { begin } from '../concurrency/transaction.ts'
import type { Position } from '../event-log/port.ts'
import { beside, foldToCheckpoints, type SecondSetOptions } from './second-set.ts'
import { liveTable, verifyTable } from './tables.ts'

type Difference = {
  readonly table: string
  readonly live: number
  readonly rebuilt: number
  readonly onlyLive: string[]
  readonly onlyRebuilt: string[]
}

export type Verdict = {
  readonly name: string
  readonly position: Position
  readonly rows: number
  readonly differences: Difference[]
}

/**
 * Rebuilds projections into separate tables, and compares all rows with the live tables at the same position. During the comparison,
 * the live projector waits, but readers do not. For each table, returns at most five rows that only one of the two tables contains.
 */
export const verifyProjections = (options: SecondSetOptions): Promise<Verdict[]> =>
  beside('compare', options, async (work) => {
    const { client, builds } = work
    await client.query(begin)
    await foldToCheckpoints(work)
    const verdicts: Verdict[] = []
    for (const { folder, position } of builds) {
      const { projection } = folder
      const compared: Difference[] = []
      for (const { name } of projection.tables) compared.push(await compare(client, projection, name))
      verdicts.push({
        name: projection.name,
        position,
        rows: compared.reduce((sum, { rebuilt }) => sum + rebuilt, 0),
        differences: compared.filter(
          ({ live, rebuilt, onlyLive, onlyRebuilt }) =>
            live !== rebuilt || onlyLive.length > 0 || onlyRebuilt.length > 0,
        ),
      })
    }
    await client.query('rollback')
    return verdicts
  })

const compare = async (client: pg.Client, projection: Projection, name: string): Promise<Difference> => {
  const [live, next] = [liveTable(projection)(name), verifyTable(projection)(name)]
  const { rows } = await client.query<Difference>(
    `select $1::text as table, (select count(*) from ${live})::float8 as live, (select count(*) from ${next})::float8 as rebuilt,
            array(select l::text from ${live} l except all select n::text from ${next} n limit 5) as "onlyLive",
            array(select n::text from ${next} n except all select l::text from ${live} l limit 5) as "onlyRebuilt"`,
    [name],
  )
  const [compared] = rows
  if (compared === undefined) throw new Error(`${name} was not compared`)
  return compared
}
