/**
 * The embedded default to a PostgreSQL, and an event log, of one's own. What was moved is marked where it was, so that it is not
 * gone on with there by mistake, and where it comes to until all of it is there.
 *
 * Can be interrupted at any point and asked for again: rows arrive in one transaction, events at their exact revisions.
 */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import { type EventLog, StreamMissing } from '../../event-log/port.ts'
import { priceBookStream } from '../../events/streams.ts'
import { type Closing, createClosing } from '../../foundation/closing.ts'
import { type Foundation, openFoundation } from '../../foundation/foundation.ts'
import { type InstallationMove, readMove, writeMoveFile } from '../../foundation/installation-move.ts'
import { openNamed, telling } from '../../foundation/open-event-log.ts'
import { knownEventLog, nameOfEventLog } from '../../foundation/own-event-log.ts'
import { catchUp } from '../catch-up.ts'
import { type Copied, copyEventLog } from '../copy-event-log.ts'
import { lookAt } from '../doctor/finding.ts'
import { keyChecks, signingKeyCheck } from '../doctor/keys.ts'
import { recordOperationOnce } from '../operator-events.ts'
import { type MovePlace, MoveRefused, openSource, openTarget, refuseOthers } from './places.ts'
import { type CopiedRows, copyRows, firstFilled } from './rows.ts'

type MoveOptions = {
  /** Of the embedded PostgreSQL that is left. */
  readonly dataDir: string
  readonly logger: Logger
  /** How long to wait for the target's server where it is recovering. */
  readonly waitMs: number
  readonly onProgress: (line: string) => void
}

type Moved = {
  readonly moveId: string
  readonly from: string
  readonly to: string
  /** The move had been completed before, and nothing was done. */
  readonly already: boolean
  /** Null: an earlier attempt had copied them. */
  readonly rows: CopiedRows | null
  /** Null: the event log stays where it is. */
  readonly events: Copied | null
}

type Move = MoveOptions & {
  readonly config: Config
  readonly closing: Closing
  readonly source: MovePlace
  readonly target: MovePlace
}

/**
 * Moves an installation from the embedded PostgreSQL in `dataDir` to where the environment names. Throws `MoveRefused`,
 * `ConfigError` or `InputFault` where it cannot, before anything is copied; whatever else ends it leaves both marked.
 */
export const moveInstallation = async (config: Config, options: MoveOptions): Promise<Moved> => {
  const closing = createClosing()
  try {
    const source = await openSource(options.dataDir, { ...options, closing })
    const target = await openTarget(config, { ...options, closing })
    const move = { ...options, config, closing, source, target }
    const before = await readMove(source.pool)
    const [from, to] = [source.name, target.name]
    const over = await isOver(move, before)
    if (over !== null) return { moveId: over, from, to, already: true, rows: null, events: null }
    const { moveId, log } = await beginMove(move, before)
    const rows = await moveRows(move, log)
    const events =
      log.target === null
        ? null
        : await copyEventLog({
            from: log.source,
            to: log.target,
            onProgress: ({ events: copied, position, head }) =>
              options.onProgress(`event log: ${copied} events, position ${position} of ${head}`),
          })
    await foldAll(move)
    await endMove(move, moveId)
    return { moveId, from, to, already: false, rows, events }
  } finally {
    await closing.close()
  }
}

/** The move that was completed before; null: it is still to be done. */
const isOver = async (
  { source, target, dataDir }: Pick<Move, 'source' | 'target' | 'dataDir'>,
  before: InstallationMove | null,
): Promise<string | null> => {
  if (before === null) return null
  if (before.state === 'arriving')
    throw new MoveRefused(`${source.name} holds an installation that is itself being moved there`)
  if (before.elsewhere !== target.name)
    throw new MoveRefused(
      `${source.name} ${before.state === 'left' ? 'was' : 'is being'} moved to ${before.elsewhere}, not to ${target.name}. ` +
        'Go on with that move, or give it up: "installation reopen"',
    )
  if (before.state === 'leaving') return null
  // Killed between its last two steps: the old one is closed for good, and the new one not open yet.
  await target.pool.query('delete from installation_moves where move_id = $1', [before.moveId])
  await writeMoveFile(dataDir, before)
  return before.moveId
}

type Logs = { readonly source: EventLog; readonly target: EventLog | null }

/** Opens both event logs. `target` is null where the event log is in an event store already, which stays what it is. */
const eventLogsOf = async ({ config, closing, source, target, logger }: Move): Promise<Logs> => {
  const known = await knownEventLog(source.pool)
  if (known === undefined) throw new MoveRefused(`${source.name} holds no installation: it was never started`)
  const variable = 'EVENT_LOG_URL'
  const named = { variable, url: config.EVENT_LOG_URL ?? target.url, prefix: config.EVENT_LOG_PREFIX }
  const to = await openNamed(named, logger)
  closing.add(() => to.close())
  await telling(named, () => to.head())
  if (known !== 'PostgreSQL') {
    if (nameOfEventLog(config) === known) return { source: to, target: null }
    throw new ConfigError(
      `${variable}: the event log of this installation is ${known}. Name it here too, move, and copy the event log afterwards with "event-log copy"`,
    )
  }
  const from = await openNamed({ variable, url: source.url }, logger)
  closing.add(() => from.close())
  await refuseForeign({ from, to, variable })
  return { source: from, target: to }
}

/** Both begin with the same price book, or the target is empty: nothing is written into the event log of another installation. */
const refuseForeign = async ({
  from,
  to,
  variable,
}: {
  readonly from: EventLog
  readonly to: EventLog
  readonly variable: string
}): Promise<void> => {
  const [ours, theirs] = await Promise.all([from, to].map(firstPriceBook))
  if (theirs === undefined || (ours?.id === theirs.id && ours.metadata === theirs.metadata)) return
  throw new ConfigError(
    `${variable}: the event log there belongs to another installation, or to a start made before the move. ` +
      'Name an empty one (of a PostgreSQL: drop the database and make it again), or one apart by EVENT_LOG_PREFIX',
  )
}

const firstPriceBook = async (log: EventLog) => {
  const [first] = await log.read(priceBookStream, { max: 1 }).catch((error: unknown) => {
    if (error instanceof StreamMissing) return []
    throw error
  })
  return first
}

/** Everything sealed, hashed and signed needs its key at the new place. */
const refuseKeysMissing = async ({ config, source }: Move, log: Logs): Promise<void> => {
  const findings = await lookAt([
    ...keyChecks({ config, pool: source.pool }),
    signingKeyCheck({ config, eventLog: log.source }),
  ])
  const faults = findings.filter(({ level }) => level === 'fault')
  if (faults.length > 0)
    throw new ConfigError(
      faults.map(({ about, says, remedy }) => `${about}: ${says}. ${remedy ?? ''}`).join('\n'),
    )
}

/** Closes both for everyone else. What keeps the move from beginning leaves both as they were. */
const beginMove = async (
  move: Move,
  before: InstallationMove | null,
): Promise<{ readonly moveId: string; readonly log: Logs }> => {
  const { source, target, dataDir } = move
  const moveId = before?.moveId ?? randomUUID()
  // First, so that no process starts after it was looked for others.
  if (before === null) await mark(source.pool, { moveId, state: 'leaving', elsewhere: target.name })
  try {
    await refuseOthers(source)
    const there = await readMove(target.pool)
    if (there?.moveId !== moveId) await refuseFilled(target, there)
    const log = await eventLogsOf(move)
    await refuseKeysMissing(move, log)
    if (there === null) await mark(target.pool, { moveId, state: 'arriving', elsewhere: source.name })
    await writeMoveFile(dataDir, await readMove(source.pool))
    return { moveId, log }
  } catch (error) {
    if (before === null) {
      await source.pool.query('delete from installation_moves')
      await writeMoveFile(dataDir, null)
    }
    throw error
  }
}

const refuseFilled = async ({ pool, name }: MovePlace, there: InstallationMove | null): Promise<void> => {
  const filled =
    there !== null || (await knownEventLog(pool)) !== undefined ? 'installation' : await firstFilled(pool)
  if (filled !== null)
    throw new ConfigError(
      `DATABASE_URL: there is an installation at ${name} already (${filled}). Name an empty database`,
    )
}

const mark = async (
  pool: pg.Pool,
  { moveId, state, elsewhere }: Pick<InstallationMove, 'moveId' | 'state' | 'elsewhere'>,
): Promise<void> => {
  await pool.query('insert into installation_moves (move_id, state, elsewhere) values ($1, $2, $3)', [
    moveId,
    state,
    elsewhere,
  ])
}

const moveRows = async ({ source, target, onProgress }: Move, log: Logs): Promise<CopiedRows | null> => {
  if ((await readMove(target.pool))?.rowsCopied === true) return null
  const from = await source.pool.connect()
  const to = await target.pool.connect().catch((error: unknown) => {
    from.release()
    throw error
  })
  let broken = true
  try {
    const copied = await copyRows(
      { from, to },
      {
        sameLog: log.target === null,
        onTable: (table) => onProgress(`rows: ${table}`),
        alsoDone: async (client) => {
          await client.query('update installation_moves set rows_copied = true')
        },
      },
    )
    broken = false
    return copied
  } finally {
    // A connection in the middle of a copy can do nothing else.
    from.release(broken)
    to.release(broken)
  }
}

/** So that the first start answers for balances and statements at once. */
const foldAll = async ({ config, logger, waitMs, onProgress }: Move): Promise<void> => {
  const foundation = await openFoundation(config, { logger, waitMs, anyMove: true })
  try {
    await catchUp(foundation, logger, ({ position, target }) =>
      onProgress(`projections: position ${position} of ${target}`),
    )
  } finally {
    await foundation.close()
  }
}

/** The old one is closed before the new one opens. */
const endMove = async ({ source, target, dataDir }: Move, moveId: string): Promise<void> => {
  await source.pool.query(`update installation_moves set state = 'left', since = now()`)
  await writeMoveFile(dataDir, await readMove(source.pool))
  await target.pool.query('delete from installation_moves where move_id = $1', [moveId])
}

/** Puts down, in the event log it came to, that the installation was moved: once, also where the command is given again. */
export const recordMoved = (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { moveId, from, to }: Pick<Moved, 'moveId' | 'from' | 'to'>,
  actor: string,
): Promise<void> =>
  recordOperationOnce(
    eventLog,
    { type: 'InstallationMoved', data: { move_id: moveId, from, to } },
    { actor, once: `moved/${moveId}` },
  )

/**
 * Gives a move up: the installation goes on where it was, and its event log says so. Returns what had become of it; null: it was
 * not moved. Where the other one was started too, both are the same installation with different ledgers from now on.
 */
export const reopenInstallation = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  { actor, dataDir }: { readonly actor: string; readonly dataDir: string },
): Promise<Pick<InstallationMove, 'state' | 'elsewhere'> | null> => {
  const move = await readMove(pool)
  if (move === null || move.state === 'arriving') return null
  const { moveId, state, elsewhere } = move
  await recordOperationOnce(
    eventLog,
    { type: 'InstallationReopened', data: { move_id: moveId, elsewhere } },
    { actor, once: `reopened/${moveId}` },
  )
  await pool.query('delete from installation_moves where move_id = $1', [moveId])
  await writeMoveFile(dataDir, null)
  return { state, elsewhere }
}
