import type pg from 'pg'
import type { Logger } from 'pino'
import { EventDataError } from '../../event-log/stored-event.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { jobsApplication, openBoss } from '../../foundation/job-queue.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { type Answer, type Declared, type Given, NeedsConsent } from '../declare.ts'
import { InputFault } from '../input.ts'
import type { Operator } from '../operator.ts'
import type { Action } from '../roles.ts'
import { longWorkQueue, queueMade } from './jobs.ts'

/**
 * Commands and queries that can take minutes run as pg-boss jobs in a process with the role `jobs`. Any interface can request them,
 * and any process can show the progress and the answer, even after a restart.
 */

/** Longer than the longest run. If the process of a run ends, its heartbeats stop, and the run fails much sooner. */
const secondsMax = 24 * 3_600
export const longWorkOptions = {
  retryLimit: 0,
  retryDelay: 5,
  expireInSeconds: secondsMax,
  heartbeatSeconds: 60,
  // After waiting for a day, work is no longer expected to begin.
  retentionSeconds: 24 * 3_600,
  // The answer can be read for a week.
  deleteAfterSeconds: 7 * 86_400,
  notify: true,
} as const
/** The maximum number of times that repeatable work is repeated because its process ended. */
const repetitionsMax = 2

export type LongWorkRequest = {
  readonly name: string
  readonly action: Action
  readonly given: Given
  readonly operator: Operator
}

export type LongWorkOutcome =
  | { readonly kind: 'done'; readonly answer: Answer }
  | {
      readonly kind: 'refused'
      readonly message: string
      readonly field: string | null
      readonly consent: Pick<NeedsConsent, 'agreement' | 'would'> | null
    }

/** The refusal that an error stands for; null for other failures, after which a repetition can succeed. */
export const refusalOf = (error: unknown): LongWorkOutcome | null => {
  if (error instanceof InputFault)
    return { kind: 'refused', message: error.message, field: error.field, consent: null }
  if (!(error instanceof CommandRefused || error instanceof EventDataError)) return null
  const { agreement, would } = error instanceof NeedsConsent ? error : { agreement: null, would: [] }
  const consent = agreement === null ? null : { agreement, would }
  return { kind: 'refused', message: error.message, field: null, consent }
}

/** The answer of finished work. Throws if the work was refused or failed. */
export const answerOf = ({ outcome, error }: LongWork): Answer => {
  if (outcome === null) throw new Error(error ?? 'the work has not ended')
  if (outcome.kind === 'done') return outcome.answer
  const { message, field, consent } = outcome
  if (field !== null) throw new InputFault(field, message)
  if (consent !== null) throw new NeedsConsent(consent.agreement, consent.would)
  throw new CommandRefused(message)
}

/** Requests and outcomes are stored as text, because PostgreSQL refuses U+0000 in JSON. */
export type Packed = { readonly text: string }

type Asked = Pick<LongWorkRequest, 'given' | 'operator'> & {
  /** A UUID. A second request with the same id changes nothing. */
  readonly id: string
  readonly declared: Pick<Declared, 'name' | 'action' | 'long'>
}

export const requestLongWork = async (
  { url }: Pick<Foundation, 'url'>,
  { id, declared: { name, action, long }, given, operator }: Asked,
  logger: Logger,
): Promise<void> => {
  const request: LongWorkRequest = { name, action, given, operator }
  const { boss, close } = await openBoss(url, logger)
  try {
    await boss.createQueue(longWorkQueue, longWorkOptions)
    await boss.send(longWorkQueue, { text: JSON.stringify(request) } satisfies Packed, {
      id,
      retryLimit: long === 'repeatable' ? repetitionsMax : 0,
    })
  } finally {
    await close()
  }
}

/** Whether a process that runs jobs is connected to the database. The database role or a pooler can hide such a process. */
export const workerRuns = async (pool: Pick<pg.Pool, 'query'>): Promise<boolean> => {
  const { rows } = await pool.query(
    'select from pg_stat_activity where datname = current_database() and application_name = $1 limit 1',
    [jobsApplication],
  )
  return rows.length === 1
}

/** Cancels work that no process has begun. Returns true if it was cancelled. */
export const takeBack = async (
  { pool, url }: Pick<Foundation, 'pool' | 'url'>,
  id: string,
  logger: Logger,
): Promise<boolean> => {
  const { boss, close } = await openBoss(url, logger)
  try {
    if ((await longWork(pool, id))?.state !== 'waiting') return false
    await boss.cancel(longWorkQueue, id)
  } finally {
    await close()
  }
  // A process may have begun the work at the same moment.
  const { rows } = await pool.query(
    `select from pgboss.job where name = $1 and id = $2 and state = 'cancelled' and started_on is null`,
    [longWorkQueue, id],
  )
  return rows.length === 1
}

export type LongWork = LongWorkRequest & {
  readonly id: string
  readonly state: 'waiting' | 'running' | 'done' | 'refused' | 'failed'
  readonly progress: { readonly line: string; readonly figures: object | null } | null
  readonly requestedAt: Date
  readonly startedAt: Date | null
  readonly endedAt: Date | null
  /** The outcome of work that has ended; null if it failed. */
  readonly outcome: LongWorkOutcome | null
  readonly error: string | null
}

type Row = {
  readonly id: string
  readonly state: string
  readonly request: string
  readonly outcome: string | null
  readonly error: string | null
  readonly created_on: Date
  readonly started_on: Date | null
  readonly completed_on: Date | null
  readonly line: string | null
  readonly figures: object | null
}

const selected = `
  select j.id, j.state::text as state, j.data->>'text' as request, j.output->>'text' as outcome, j.output->>'message' as error,
         j.created_on, j.started_on, j.completed_on, p.line, p.figures
    from pgboss.job j left join work_progress p on p.job_id = j.id
   where j.name = $1`

/** Returns no rows until the first process that uses the queue has created its tables. */
const worksWhere = async (
  pool: Pick<pg.Pool, 'query'>,
  rest: string,
  value: string | number,
): Promise<LongWork[]> => {
  if (!(await queueMade(pool))) return []
  const { rows } = await pool.query<Row>(`${selected} ${rest}`, [longWorkQueue, value])
  return rows.map(longWorkOf)
}

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The work with this id; null if the work does not exist, or ended more than a week ago. */
export const longWork = async (pool: Pick<pg.Pool, 'query'>, id: string): Promise<LongWork | null> =>
  uuidForm.test(id) ? ((await worksWhere(pool, 'and j.id = $2', id))[0] ?? null) : null

/** Long-running work, newest first. */
export const longWorks = (pool: Pick<pg.Pool, 'query'>, max: number): Promise<LongWork[]> =>
  worksWhere(pool, 'order by j.created_on desc, j.id limit $2', max)

const longWorkOf = (row: Row): LongWork => {
  const outcome = row.state === 'completed' ? (JSON.parse(row.outcome ?? 'null') as LongWorkOutcome) : null
  return {
    ...(JSON.parse(row.request) as LongWorkRequest),
    id: row.id,
    state: stateOf(row.state, outcome),
    outcome,
    progress: row.line === null ? null : { line: row.line, figures: row.figures },
    requestedAt: row.created_on,
    startedAt: row.started_on,
    endedAt: row.completed_on,
    error: errors[row.state]?.(row.error) ?? null,
  }
}

const errors: Readonly<Record<string, (message: string | null) => string>> = {
  failed: (message) => message ?? 'its process ended',
  cancelled: () => 'it was cancelled before it began',
}

const stateOf = (state: string, outcome: LongWorkOutcome | null): LongWork['state'] => {
  if (outcome !== null) return outcome.kind
  if (state === 'active') return 'running'
  return state === 'created' || state === 'retry' ? 'waiting' : 'failed'
}

const lineMax = 500

/** Stores the progress of the work, so that any process can show it. */
export const storeProgress = async (
  pool: Pick<pg.Pool, 'query'>,
  id: string,
  { line, figures = null }: { readonly line: string; readonly figures?: object | null | undefined },
): Promise<void> => {
  await pool.query(
    `insert into work_progress (job_id, line, figures) values ($1, $2, $3)
     on conflict (job_id) do update set line = excluded.line, figures = excluded.figures, told_at = now()`,
    [id, line.replaceAll(/\p{Cc}+/gu, ' ').slice(0, lineMax), figures],
  )
}

/** Deletes the progress of work whose answer has been deleted. */
export const forgetProgress = async (pool: Pick<pg.Pool, 'query'>): Promise<void> => {
  await pool.query(`delete from work_progress where told_at < now() - $1 * interval '1 s'`, [
    longWorkOptions.deleteAfterSeconds,
  ])
}

/** Long-running work as JSON, for programs. */
export const longWorkJson = (work: LongWork) => ({
  job_id: work.id,
  name: work.name,
  state: work.state,
  progress: work.progress?.line ?? null,
  figures: work.progress?.figures ?? null,
  requested_by: work.operator.actor,
  requested_at: work.requestedAt,
  started_at: work.startedAt,
  ended_at: work.endedAt,
  answer: work.outcome?.kind === 'done' ? work.outcome.answer.json : null,
  error: work.outcome?.kind === 'refused' ? work.outcome.message : work.error,
})
