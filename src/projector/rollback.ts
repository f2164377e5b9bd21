import pg from 'pg'
import type { Projection, RowSeal } from '../../projections/projection.ts'
import { type EventLog, logStart, type Position, stillHolds } from '../event-log/port.ts'
import { foldUp, inSavepoint } from './build.ts'
import { readCheckpoints, strayCheckpoints, strayMessage } from './checkpoints.ts'
import { createFolder } from './fold.ts'
import { readKept } from './kept.ts'
import { switchTo } from './rebuild.ts'
import { holdCheckpoints, type SecondSet } from './second-set.ts'
import { keptTable } from './tables.ts'

/** There are no rows to go back to, or they cannot take the place of the live ones. `message` says why, and what else to do. */
export class NotKept extends Error {
  override name = 'NotKept'
}

/** More than these are not folded while the live projector waits: seconds of work. */
const behindMax = 500_000n

/**
 * Puts the kept rows in the place of the live ones, at the same position and in one transaction. Those that were live are kept
 * then, so that it can be taken back.
 */
export const rollBack = async (
  { url, eventLog, seal }: { readonly url: string; readonly eventLog: EventLog; readonly seal: RowSeal },
  projection: Projection,
): Promise<{ readonly position: Position; readonly folded: number }> => {
  const client = new pg.Client({ connectionString: url, application_name: 'rollback' })
  client.on('error', () => undefined)
  await client.connect()
  try {
    await client.query('begin')
    await client.query(`set local lock_timeout = '10s'`)
    await holdCheckpoints(client, [projection])
    const replaced = (await readCheckpoints(client)).find(({ name }) => name === projection.name)
    if (replaced === undefined) throw new Error(`${projection.name} has no checkpoint`)
    const { position, poison, place } = await fitting(client, eventLog, projection, replaced.position)
    const [stray] = await strayCheckpoints(eventLog, [replaced])
    if (stray !== undefined) throw new NotKept(strayMessage([stray]))
    const table = keptTable(projection)
    const halted = projection.money ? poison.map(({ stream }) => stream) : []
    const folder = createFolder(projection, { table, eventLog, seal, halted })
    const target = replaced.position
    const build = { folder, position, target, from: position, indexed: true, poison: [...poison] }
    const options = { url, eventLog, seal, projections: [projection] }
    const work: SecondSet = { client, options, builds: [build], events: 0, startedAt: performance.now() }
    await foldUp(work, inSavepoint)
    await switchTo(client, projection, {
      ...{ replaced, from: table, poison: build.poison, keep: replaced.state === 'live' },
      place: target === position ? place : replaced.place,
    })
    await client.query('commit')
    return { position: target, folded: work.events }
  } finally {
    await client.query('rollback').catch(() => undefined)
    await client.end()
  }
}

/** The kept rows, where this release and this log can go on with them. */
const fitting = async (
  client: pg.Client,
  eventLog: EventLog,
  { name, version }: Projection,
  target: Position,
) => {
  const kept = (await readKept(client)).find((one) => one.name === name)
  if (kept === undefined)
    throw new NotKept(
      `${name}: no rows are kept; they are for 7 days after a switch. "projection rebuild ${name}" folds them anew`,
    )
  if (kept.version !== version)
    throw new NotKept(
      `${name}: the kept rows are of version ${kept.version}, which this release does not know; roll back with the release that wrote them`,
    )
  const { position, place } = kept
  if (position !== logStart && (place === null || !(await stillHolds(eventLog, place))))
    throw new NotKept(
      `${name}: the kept rows were folded from another event log; "projection rebuild ${name}" folds them anew`,
    )
  if (position > target) throw new NotKept(`${name}: the kept rows are ahead of the live ones; try again`)
  if (target - position > behindMax)
    throw new NotKept(
      `${name}: the kept rows are ${target - position} events behind; "projection rebuild ${name}" folds them anew`,
    )
  return kept
}
