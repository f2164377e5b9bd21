import type pg from 'pg'
import { projections } from '../../projections/index.ts'
import type { Projection } from '../../projections/projection.ts'
import { catchUp } from '../administration/catch-up.ts'
import { formatCredits } from '../billing/money.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { type EventLog, StreamMissing } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import { operatorStream } from '../events/streams.ts'
import {
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from '../projector/checkpoints.ts'
import { type OnlyInRows, onlyInRows } from '../projector/only-in-rows.ts'
import { type RebuildProgress, rebuildProjections, verifyProjections } from '../projector/rebuild.ts'
import { type Command, type CommandContext, type Given, labelOf, UsageError } from './command.ts'
import { table } from './table.ts'

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
      const { pool, eventLog } = await foundation({ anyHistory: true })
      const head = await eventLog.head()
      const parked = await pool.query<{ projection: string; count: string }>(
        'select projection, count(*) from parked_events group by projection',
      )
      const checkpoints = await readCheckpoints(pool)
      const stray = await strayCheckpoints(eventLog, checkpoints)
      const halted = await readHaltedStreams(pool)
      const listed = checkpoints.map((checkpoint) => {
        const { name, version, position, error, updatedAt } = checkpoint
        const astray = stray.includes(checkpoint)
        return {
          name,
          version,
          state: astray ? ('halted' as const) : checkpoint.state,
          position: position.toString(),
          behind: astray ? null : (position < head ? head - position : 0n).toString(),
          parked: Number(parked.rows.find(({ projection }) => projection === name)?.count ?? 0),
          halted_streams: halted
            .filter(({ projection }) => projection === name)
            .map(({ stream, position: at, error: why }) => ({
              stream,
              position: at.toString(),
              error: why,
            })),
          updated_at: updatedAt.toISOString(),
          error: astray ? strayMessage([checkpoint]) : error,
        }
      })
      return {
        json: listed,
        failed: listed.some(({ state, halted_streams }) => state === 'halted' || halted_streams.length > 0),
        lines: [
          ...table(
            listed.map(({ error, halted_streams, ...row }) => ({
              ...row,
              halted_streams: halted_streams.length,
            })),
          ),
          ...listed.flatMap(({ name, error }) => (error === null ? [] : [`${name}: ${error}`])),
          ...listed.flatMap(({ name, halted_streams }) =>
            halted_streams.map(
              ({ stream, position, error }) =>
                `${name}: the rows of ${stream} stop before position ${position}: ${error}`,
            ),
          ),
        ],
      }
    },
  },
  {
    name: 'projection rebuild',
    summary: 'fold projections anew from the event log and switch; readers see the old rows until then',
    parameters: [
      ...nameParameters,
      { name: 'reason', help: 'kept in the event log (default "asked by operator")' },
      { name: 'yes', help: 'forget what only the rows know, without being asked', kind: 'flag' },
    ],
    run: async (context, given) => {
      const { foundation, progress } = context
      // Hours of work at worst: nobody gets them by leaving a name out.
      if (given.text('name') === undefined && !given.flag('all'))
        throw new UsageError(`name a projection, or give --all; there are ${projectionNames}`)
      const chosen = chosenProjections(given)
      const reason = labelOf('reason', given.text('reason') ?? 'asked by operator')
      const { url, eventLog, pool, eventLogName, secrets } = await foundation({
        anyEventLog: chosen.length === projections.length,
        anyHistory: true,
      })
      const fromAnotherLog = await isAnotherLog(pool, eventLogName)
      await recordRebuild(eventLog, chosen, reason)
      const { events, elapsedMs, switched } = await rebuildProjections({
        url,
        eventLog,
        seal: secrets.rowSeal,
        projections: chosen,
        mayReplace: async (client) => mayForget(await onlyInRows(client, chosen), given, context),
        onProgress: reporter(chosen, progress),
      })
      if (!switched)
        return {
          json: { projections: [], switched },
          failed: true,
          lines: ['nothing was changed: the rows are as they were, and halted'],
        }
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
        seal: open.secrets.rowSeal,
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

/** Lists what a rebuild from a shorter log would forget, and asks. Standard output stays for the answer. */
const mayForget = async (
  lost: readonly OnlyInRows[],
  given: Given,
  { ask }: CommandContext,
): Promise<boolean> => {
  if (lost.length === 0) return true
  process.stderr.write(
    `${[
      'The event log was restored from an older copy, or replaced. Only the rows know the following, and the rebuild forgets it:',
      ...lost
        .slice(0, listedMax)
        .map(({ kind, what, organization_id, at, amount_micro }) =>
          [
            `  ${kind}`,
            what,
            organization_id,
            at,
            amount_micro === null ? null : `${formatCredits(BigInt(amount_micro))} credits`,
          ]
            .filter((part) => part !== null)
            .join('  '),
        ),
      ...(lost.length > listedMax ? [`  and ${lost.length - listedMax} more`] : []),
      'Revoked keys work again, erased people come back, and credits are as the log has them, until you repeat what is listed.',
    ].join('\n')}\n`,
  )
  if (given.flag('yes')) return true
  const answer = await ask('Rebuild from this log and forget the above?')
  if (answer === null)
    process.stderr.write('Nobody can be asked here: run it on a terminal, or with --yes.\n')
  return answer === true
}

const listedMax = 1_000

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
