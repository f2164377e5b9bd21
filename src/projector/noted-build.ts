import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import type pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import { type EventLog, type LogPlace, stillHolds } from '../event-log/port.ts'
import type { Poison } from './fold.ts'
import { nextTable } from './tables.ts'

/**
 * Stores the progress of a rebuild, so that the next rebuild can continue if the process is killed. It continues only if the rows were
 * folded by the same code and from the same log.
 */

/** The stored form of the events that a build has set aside. */
type Aside = readonly { readonly position: string; readonly stream: string; readonly error: string }[]

const asideOf = (poison: readonly Poison[]): string =>
  JSON.stringify(poison.map(({ position, ...one }) => ({ position: position.toString(), ...one })))

const poisonOf = (aside: Aside): Poison[] =>
  aside.map(({ position, ...one }) => ({ position: BigInt(position), ...one }))

/** A digest of the source files of all projections. A killed rebuild is continued only if this code has not changed. */
let digested: string | undefined
const foldCode = (): string => {
  if (digested !== undefined) return digested
  const digest = createHash('sha256')
  for (const folder of ['../../projections/', '../events/']) {
    const url = new URL(folder, import.meta.url)
    for (const name of readdirSync(url).sort())
      digest.update(`${name}\n`).update(readFileSync(new URL(name, url)))
  }
  digested = digest.digest('base64url')
  return digested
}

type NotedBuild = {
  readonly place: LogPlace
  readonly poison: Poison[]
  readonly indexed: boolean
}

/** Returns the build that can be continued, or null. */
export const readNoted = async (
  client: pg.ClientBase,
  eventLog: Pick<EventLog, 'at'>,
  projection: Projection,
): Promise<NotedBuild | null> => {
  const { rows } = await client.query<{
    position: string
    event_id: string | null
    digest: string | null
    aside: Aside
    indexed: boolean
  }>(
    `select position, event_id, digest, aside, indexed from projection_builds
      where name = $1 and version = $2 and fold = $3
        and (select bool_and(to_regclass(t) is not null) from unnest($4::text[]) t)`,
    [
      projection.name,
      projection.version,
      foldCode(),
      projection.tables.map(({ name }) => nextTable(projection)(name)),
    ],
  )
  const [row] = rows
  if (row === undefined || row.event_id === null || row.digest === null) return null
  const place = { position: BigInt(row.position), eventId: row.event_id, digest: row.digest }
  if (!(await stillHolds(eventLog, place))) return null
  return { place, poison: poisonOf(row.aside), indexed: row.indexed }
}

export const beginNoted = async (client: pg.ClientBase, { name, version }: Projection): Promise<void> => {
  await client.query(
    `insert into projection_builds (name, version, fold) values ($1, $2, $3)
       on conflict (name) do update set version = excluded.version, fold = excluded.fold, position = 0, event_id = null,
          digest = null, aside = '[]', indexed = false, updated_at = now()`,
    [name, version, foldCode()],
  )
}

export const noteBuild = async (
  client: pg.ClientBase,
  { name }: Projection,
  { position, eventId, digest }: LogPlace,
  poison: readonly Poison[],
): Promise<void> => {
  await client.query(
    'update projection_builds set position = $2, event_id = $3, digest = $4, aside = $5, updated_at = now() where name = $1',
    [name, position.toString(), eventId, digest, asideOf(poison)],
  )
}

export const noteIndexed = async (client: pg.ClientBase, { name }: Projection): Promise<void> => {
  await client.query('update projection_builds set indexed = true where name = $1', [name])
}

/** Deletes the stored progress, in the caller's transaction. */
export const endNoted = async (client: pg.ClientBase, { name }: Projection): Promise<void> => {
  await client.query('delete from projection_builds where name = $1', [name])
}
