import type pg from 'pg'
import { projections } from '../../../projections/index.ts'
import type { Projection } from '../../../projections/projection.ts'
import { eventIdOf } from '../../event-log/event-id.ts'
import { type EventLog, StreamMissing } from '../../event-log/port.ts'
import { encodeEvent } from '../../event-log/stored-event.ts'
import { operatorStream } from '../../events/streams.ts'
import { readCheckpoints } from '../../projector/checkpoints.ts'
import { type RebuildProgress, rebuildProjections, verifyProjections } from '../../projector/rebuild.ts'
import { catchUp } from '../catch-up.ts'
import { type Command, type Given, labelOf, UsageError } from '../command.ts'

const projectionNames = projections.map(({ name }) => name).join(', ')

const nameParameters = [
  { name: 'name', help: `one of ${projectionNames}` },
  { name: 'all', help: 'every projection', kind: 'flag' },
] as const

export const projectionCommands: readonly Command[] = [
  {
    name: 'projection list',
    summary: 'where every projection stands, and how far behind the event log',
    parameters: [],
    run: async ({ foundation }) => {
      const { pool, eventLog } = await foundation()
      const head = await eventLog.head()
      const parked = await pool.query<{ projection: string; count: string }>(
        'select projection, count(*) from parked_events group by projection',
      )
      const checkpoints = await readCheckpoints(pool)
      return {
        json: checkpoints.map(({ name, version, position, state, error, updatedAt }) => ({
          name,
          version,
          state,
          position: position.toString(),
          behind: (head - position).toString(),
          parked: Number(parked.rows.find(({ projection }) => projection === name)?.count ?? 0),
          updated_at: updatedAt.toISOString(),
          error,
        })),
        failed: checkpoints.some(({ state }) => state === 'halted'),
      }
    },
  },
  {
    name: 'projection rebuild',
    summary: 'fold projections anew from the event log and switch; readers see the old rows until then',
    parameters: [
      ...nameParameters,
      { name: 'reason', help: 'kept in the event log (default "asked by operator")' },
    ],
    run: async ({ foundation, progress }, given) => {
      // Hours of work at worst: nobody gets them by leaving a name out.
      if (given.text('name') === undefined && !given.flag('all'))
        throw new UsageError(`name a projection, or give --all; there are ${projectionNames}`)
      const chosen = chosenProjections(given)
      const reason = labelOf('reason', given.text('reason') ?? 'asked by operator')
      const { url, eventLog, pool, eventLogName } = await foundation({
        anyEventLog: chosen.length === projections.length,
      })
      const fromAnotherLog = await isAnotherLog(pool, eventLogName)
      await recordRebuild(eventLog, chosen, reason)
      const { events, elapsedMs } = await rebuildProjections({
        url,
        eventLog,
        projections: chosen,
        fromAnotherLog,
        onProgress: reporter(chosen, progress),
      })
      if (fromAnotherLog) await pool.query('update installation set event_log = $1', [eventLogName])
      return {
        json: {
          projections: chosen.map(({ name, version }) => ({ name, version })),
          events,
          seconds: Math.round(elapsedMs) / 1000,
          events_per_second: rateOf(events, elapsedMs),
        },
        lines: [
          `rebuilt ${chosen.map(({ name }) => name).join(', ')} from ${events} events in ${Math.round(elapsedMs) / 1000} s`,
        ],
      }
    },
  },
  {
    name: 'projection verify',
    summary: 'rebuild projections beside the live ones and compare row for row',
    parameters: nameParameters,
    run: async ({ foundation, progress, logger }, given) => {
      const chosen = chosenProjections(given)
      const open = await foundation()
      await catchUp(open, logger)
      const verdicts = await verifyProjections({
        url: open.url,
        eventLog: open.eventLog,
        projections: chosen,
        onProgress: reporter(chosen, progress),
      })
      const verified = verdicts.map(({ name, position, rows, differences }) => ({
        name,
        ok: differences.length === 0,
        position: position.toString(),
        rows,
        differences: differences.map(({ table, live, rebuilt, onlyLive, onlyRebuilt }) => ({
          table,
          live_rows: live,
          rebuilt_rows: rebuilt,
          only_live: onlyLive,
          only_rebuilt: onlyRebuilt,
        })),
      }))
      return {
        json: verified,
        failed: verified.some(({ ok }) => !ok),
        lines: verified.flatMap(({ name, ok, rows, position, differences }) => [
          `${ok ? 'same     ' : 'DIFFERENT'}  ${name}  ${rows} rows at position ${position}`,
          ...differences.flatMap(({ table, only_live, only_rebuilt }) => [
            ...only_live.map((row) => `  ${table}: only live     ${row}`),
            ...only_rebuilt.map((row) => `  ${table}: only rebuilt  ${row}`),
          ]),
        ]),
      }
    },
  },
]

/** The read models were folded from another event log than the one in use now. */
const isAnotherLog = async (pool: pg.Pool, eventLogName: string): Promise<boolean> => {
  const { rows } = await pool.query<{ event_log: string }>('select event_log from installation')
  return rows[0] !== undefined && rows[0].event_log !== eventLogName
}

/** The projections named, or all of them when none is. */
const chosenProjections = (given: Given): readonly Projection[] => {
  const name = given.text('name')
  if (name === undefined || given.flag('all')) return projections
  const projection = projections.find((one) => one.name === name)
  if (projection === undefined)
    throw new UsageError(`there is no projection "${name}"; there are ${projectionNames}`)
  return [projection]
}

const rateOf = (events: number, elapsedMs: number): number =>
  elapsedMs === 0 ? 0 : Math.round((events * 1000) / elapsedMs)

const reporter =
  (chosen: readonly Projection[], progress: (line: string) => void) =>
  ({ position, target, events, elapsedMs }: RebuildProgress): void => {
    const share = target === 0n ? 1 : Number(position) / Number(target)
    const leftS = share === 0 ? 0 : Math.ceil((elapsedMs / share - elapsedMs) / 1000)
    progress(
      `${chosen.map(({ name }) => name).join(', ')}  position ${position} of ${target} (${Math.floor(share * 100)} %)  ${rateOf(events, elapsedMs)} events/s  ${leftS} s left`,
    )
  }

/** Who asked for a rebuild is a fact like any other. */
const recordRebuild = async (
  eventLog: EventLog,
  chosen: readonly Projection[],
  reason: string,
): Promise<void> => {
  const last = await eventLog
    .read(operatorStream, { direction: 'backwards', max: 1 })
    .catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
  const revision = last[0]?.revision ?? -1
  const at = new Date().toISOString()
  await eventLog.append(operatorStream, revision === -1 ? 'none' : revision, [
    encodeEvent(
      { type: 'RebuildRequested', data: { projections: chosen.map(({ name }) => name), reason } },
      { id: eventIdOf(operatorStream, `rebuild/${at}/${process.pid}`, 0), actor: 'cli', effectiveAt: at },
    ),
  ])
}
