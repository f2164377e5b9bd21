import { catchUp } from '../administration/catch-up.ts'
import { moveInstallation, recordMoved, reopenInstallation } from '../administration/move/move.ts'
import { MoveRefused } from '../administration/move/places.ts'
import { type InstallationMove, readMove } from '../foundation/installation-move.ts'
import { type Command, type OperatedFoundation, wholeOrNot } from './command.ts'

/** As other commands wait for a database. */
const databaseWaitMs = 10_000

const move: Command = {
  name: 'installation move',
  summary:
    'move the embedded default to the DATABASE_URL and EVENT_LOG_URL of the environment, with everything; can be resumed',
  parameters: [
    {
      name: 'data-dir',
      help: 'of the embedded PostgreSQL that is left; default: DATA_DIR, else .data',
      kind: 'file',
    },
  ],
  changes: {
    of: 'records',
    asks: 'on a terminal',
    left: 'Neither the old nor the new one starts then. The same command goes on where it stopped; "installation reopen" gives it up.',
    plan: async ({ config }, given) => ({
      says: [
        `Copy everything of the embedded PostgreSQL in ${given.text('data-dir') ?? config.DATA_DIR} to where DATABASE_URL and EVENT_LOG_URL name.`,
        'The installation starts there from then on, and here no more.',
      ],
    }),
  },
  run: async ({ config, logger, progress, foundation }, given) => {
    const dataDir = given.text('data-dir') ?? config.DATA_DIR
    const moved = await moveInstallation(config, {
      ...{ dataDir, logger, waitMs: databaseWaitMs, onProgress: progress },
    })
    const { to, already, rows, events } = moved
    const open = await foundation()
    await recordMoved(open, moved, open.operator.actor)
    await catchUp(open, logger)
    const counted = Object.values(rows ?? {}).reduce((sum, one) => sum + one, 0)
    const next = 'run "event-log verify", "ledger verify" and "projection verify --all", then start'
    const event_log =
      events === null ? null : { events: events.events, already: events.already, streams: events.streams }
    return {
      json: { to, already, rows, event_log, next },
      lines: already
        ? [`${dataDir} was moved to ${to} before. Nothing was done.`]
        : [
            `moved to ${to}`,
            rows === null ? 'rows: copied by an earlier attempt' : `rows: ${counted}`,
            events === null
              ? 'event log: it stays where it is'
              : `event log: ${events.events} events of ${events.streams} streams`,
            `${dataDir} starts no more. Next: ${next}.`,
          ],
    }
  },
}

const reopen: Command = {
  name: 'installation reopen',
  summary: 'give a move up, and go on where the installation was before it',
  parameters: [],
  changes: {
    of: 'records',
    asks: 'always',
    left: wholeOrNot('doctor'),
    plan: async ({ foundation }) => {
      const move = await leftFrom(await foundation({ anyMove: true }))
      return {
        says: [
          `Let this installation start here again, although it was moved to ${move.elsewhere}.`,
          'Calls, grants and revoked keys of there are not known here. Never start that one again.',
        ],
      }
    },
  },
  run: async ({ foundation, config }) => {
    const open = await foundation({ anyMove: true })
    const { elsewhere } = await leftFrom(open)
    await reopenInstallation(open, { ...open.operator, dataDir: config.DATA_DIR })
    return {
      json: { reopened: true, elsewhere },
      lines: [`It starts here again. Never start ${elsewhere} again.`],
    }
  },
}

const leftFrom = async ({ pool }: Pick<OperatedFoundation, 'pool'>): Promise<InstallationMove> => {
  const move = await readMove(pool)
  if (move === null || move.state === 'arriving')
    throw new MoveRefused('This installation was not moved from here.')
  return move
}

export const installationCommands: readonly Command[] = [move, reopen]
