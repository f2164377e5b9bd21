import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import type { Foundation } from '../../foundation/foundation.ts'
import { openBoss, wakeWorkers } from '../../foundation/job-queue.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { recordOperation } from '../operator-events.ts'
import { deadLetterQueue, type JobRow } from './jobs.ts'

type Parts = Pick<Foundation, 'pool' | 'url' | 'eventLog'>

export type RunState = {
  readonly state: 'waiting' | 'waits_for_another' | 'running'
  readonly seconds: number
}

type RunResult = {
  readonly run_id: string
  readonly succeeded: boolean
  /** Null if the run never began. */
  readonly duration_ms: number | null
  readonly error: string | null
  /** The run's result, as JSON. */
  readonly result: string | null
}

/**
 * A process with the role `jobs` checks the queue every 30 s. If the run is not taken within three such intervals, no process with
 * this role is running.
 */
const takenWithinDefaultMs = 90_000
const pollMs = 250
/** If a run exceeds its time limit, the queue ends the run within this time. */
const settledWithinMs = 120_000

/**
 * Requests a run of a scheduled job through the queue, and waits for the outcome. The run waits for a scheduled run to end, is
 * attempted only once, and is cancelled if no process takes it. Throws `CommandRefused` if the job is not scheduled.
 */
export const runNow = async (
  { pool, url, eventLog }: Parts,
  {
    job,
    actor,
    logger,
    onProgress,
    takenWithinMs = takenWithinDefaultMs,
  }: {
    job: JobRow
    actor: string
    logger: Logger
    onProgress: (state: RunState) => void
    takenWithinMs?: number
  },
): Promise<RunResult> => {
  const { name } = job
  if (job.cron === null)
    throw new CommandRefused(
      `${name} cannot be run manually: the service requests this job with its own input`,
    )
  const runId = randomUUID()
  const { boss, close } = await openBoss(url, logger)
  try {
    await recordOperation(eventLog, { type: 'JobRequested', data: { job: name, run_id: runId } }, { actor })
    await boss.send(name, null, { id: runId, retryLimit: 0 })
    const waiting = { job, runId, onProgress, takenWithinMs }
    const ended = await outcome(pool, waiting)
    if (ended !== null) return ended
    await boss.cancel(name, runId)
    // The run is not cancelled if a process has taken it at the same moment.
    const last = await runOf(pool, { name, runId })
    const taken = last?.state === 'active' ? await outcome(pool, waiting) : null
    return taken ?? untaken(runId, takenWithinMs)
  } finally {
    await close()
  }
}

const untaken = (runId: string, takenWithinMs: number): RunResult => ({
  run_id: runId,
  succeeded: false,
  duration_ms: null,
  error: `the run was cancelled because no process took it within ${takenWithinMs / 1_000} s: start a process with the role jobs`,
  result: null,
})

type Run = {
  readonly state: string
  readonly duration_ms: number | null
  readonly message: string | null
  readonly output: string | null
  /** True if another run of the job is in progress. */
  readonly behind: boolean
}

const runOf = async (
  pool: Pick<pg.Pool, 'query'>,
  { name, runId }: { name: string; runId: string },
): Promise<Run | undefined> => {
  const { rows } = await pool.query<Run>(
    `select state::text as state, extract(epoch from completed_on - started_on)::float8 * 1000 as duration_ms,
            coalesce(output->>'message', output->>'value') as message, output::text as output,
            exists (select from pgboss.job other where other.name = $1 and other.state = 'active' and other.id <> $2) as behind
       from pgboss.job where name = $1 and id = $2`,
    [name, runId],
  )
  return rows[0]
}

/** Waits for the outcome of a run; null if no process took the run in time. */
const outcome = async (
  pool: Parts['pool'],
  {
    job: { name, expire_seconds },
    runId,
    onProgress,
    takenWithinMs,
  }: { job: JobRow; runId: string; onProgress: (state: RunState) => void; takenWithinMs: number },
): Promise<RunResult | null> => {
  const runMaxMs = expire_seconds * 1_000 + settledWithinMs
  const startedAt = performance.now()
  let [notTakenSince, takenAt, stoodBehind]: [number, number | null, boolean] = [startedAt, null, false]
  for (;;) {
    const run = await runOf(pool, { name, runId })
    const now = performance.now()
    if (run === undefined) throw new Error(`the queue no longer contains run ${runId} of ${name}`)
    if (run.state === 'completed' || run.state === 'failed' || run.state === 'cancelled') {
      const succeeded = run.state === 'completed'
      const error = succeeded ? null : (run.message ?? `the run was ${run.state}`)
      return {
        run_id: runId,
        succeeded,
        duration_ms: run.duration_ms,
        error,
        result: succeeded ? run.output : null,
      }
    }
    const seconds = Math.round((now - startedAt) / 1_000)
    if (run.state === 'active') {
      takenAt ??= now
      if (now - takenAt > runMaxMs)
        throw new Error(
          `${name} has been running for more than ${Math.round(runMaxMs / 1_000)} s; see "jobs list"`,
        )
      onProgress({ state: 'running', seconds })
    } else {
      // The run waits for the job's other run, but not longer than the time limit of a run.
      if (run.behind && now - startedAt < runMaxMs) notTakenSince = now
      else if (stoodBehind) await wakeWorkers(pool, [name])
      stoodBehind = run.behind
      if (now - notTakenSince > takenWithinMs) return null
      onProgress({ state: run.behind ? 'waits_for_another' : 'waiting', seconds })
    }
    await sleep(pollMs)
  }
}

const retriedAtOnceMax = 1_000

/**
 * Retries one failed run, or all failed runs. If several runs of a job had the same input, only one run is requested, because jobs
 * are idempotent. Returns the number of runs by job. Throws `CommandRefused` if there is nothing to retry.
 */
export const retryDeadLetters = async (
  { pool, url, eventLog }: Parts,
  { id, actor, logger }: { id: string | null; actor: string; logger: Logger },
): Promise<{ job: string; runs: number }[]> => {
  const { boss, close } = await openBoss(url, logger)
  try {
    const { rows } = await pool.query<{ id: string; job: string; routable: boolean }>(
      `select distinct on (d.source_name, d.data::text) d.id, d.source_name as job,
              exists (select from pgboss.queue q where q.name = d.source_name) as routable
         from pgboss.job d
        where d.name = $1 and d.state < 'active' and d.source_name is not null and ($2::uuid is null or d.id = $2)
        order by d.source_name, d.data::text, d.created_on desc limit $3`,
      [deadLetterQueue, id, retriedAtOnceMax],
    )
    const chosen = rows.filter(({ routable }) => routable)
    if (chosen.length === 0)
      throw new CommandRefused(
        rows.length > 0
          ? `the job ${rows[0]?.job} no longer exists`
          : id === null
            ? 'there are no dead letters'
            : `there is no dead letter ${id}; see "jobs dead"`,
      )
    const counted = Map.groupBy(chosen, ({ job }) => job)
    const runs = [...counted].map(([job, of]) => ({ job, runs: of.length }))
    await recordOperation(eventLog, { type: 'DeadLettersRetried', data: { runs } }, { actor })
    // Older runs with the same input are deleted first, so that the newest run still exists after an interruption.
    await pool.query(
      `delete from pgboss.job d using pgboss.job k
        where k.name = $1 and k.id = any ($2::uuid[]) and d.name = $1 and d.state < 'active' and d.id <> k.id
          and d.source_name = k.source_name and d.data::text is not distinct from k.data::text and d.created_on <= k.created_on
          and $3::uuid is null`,
      [deadLetterQueue, chosen.map((one) => one.id), id],
    )
    await boss.redrive(deadLetterQueue, { ids: chosen.map((one) => one.id), limit: retriedAtOnceMax })
    await wakeWorkers(
      pool,
      runs.map(({ job }) => job),
    )
    return runs
  } finally {
    await close()
  }
}

/** The next time of each scheduled job, by this machine's clock. Jobs whose schedule cannot be read are left out. */
export const nextRuns = async (
  url: string,
  jobs: readonly Pick<JobRow, 'name' | 'cron'>[],
  atMs: number,
): Promise<Map<string, Date>> => {
  const { PgBoss } = await import('pg-boss')
  // The queue is not started, because only its calculation of times is needed.
  const boss = new PgBoss({ connectionString: url })
  const next = new Map<string, Date>()
  for (const { name, cron } of jobs) {
    if (cron === null) continue
    const [at] = await Promise.resolve()
      .then(() => boss.previewSchedule(cron, { count: 1, from: new Date(atMs) }))
      .catch(() => [])
    if (at !== undefined) next.set(name, at)
  }
  return next
}
