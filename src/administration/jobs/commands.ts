import { z } from 'zod'
import { nearest } from '../../foundation/nearest.ts'
import { command, query } from '../declare.ts'
import { flag, name, uuid } from '../fields.ts'
import { InputFault } from '../input.ts'
import { mayDo, rolesThatMay } from '../roles.ts'
import { deadLetters, type JobRow, knownJobs } from './jobs.ts'
import { longWork, longWorkJson, longWorks } from './long-work.ts'
import { nextRuns, type RunState, retryDeadLetters, runNow } from './now.ts'

const listedMax = 1_000

const secondsOf = (ms: number | null): number | null => (ms === null ? null : Math.round(ms) / 1_000)

const jobName = () => name({ label: 'Job', help: 'as in "jobs list"' })

/** The job with this name. If there is none, throws an `InputFault` that suggests the most similar name. */
const jobNamed = (wanted: string, known: readonly JobRow[]): JobRow => {
  const job = known.find((one) => one.name === wanted)
  if (job !== undefined) return job
  const names = known.filter(({ cron }) => cron !== null).map((one) => one.name)
  const meant = nearest(wanted, names)
  throw new InputFault(
    'name',
    names.length === 0
      ? `there is no job "${wanted}": no process with the role jobs has ever started`
      : `there is no job "${wanted}"${meant === null ? '.' : `; did you mean ${meant}?`} The jobs are ${names.join(', ')}`,
  )
}

const listJobs = query({
  name: 'jobs list',
  action: 'system.read',
  summary: 'list scheduled jobs: last run and its result, next run, failures',
  input: z.object({}),
  columns: [
    { name: 'name', label: 'Job', kind: 'name' },
    { name: 'purpose', label: 'Purpose' },
    { name: 'cron', label: 'Schedule' },
    { name: 'running', label: 'Running' },
    { name: 'last_run_at', label: 'Last run (UTC)', kind: 'instant' },
    { name: 'last_duration_seconds', label: 'Duration, s', kind: 'number' },
    { name: 'last_outcome', label: 'Outcome' },
    { name: 'next_run_at', label: 'Next run (UTC)', kind: 'instant' },
    { name: 'failed_24h', label: 'Failures, 24 h', kind: 'number' },
    { name: 'dead_letters', label: 'Dead letters', kind: 'number' },
    { name: 'error', label: 'Error', kind: 'whole' },
  ],
  empty: 'No jobs are scheduled yet, because no process with the role jobs has started',
  nextOfRow: [{ name: 'jobs run', label: 'Run', given: ({ name: job }) => ({ name: job }) }],
  run: async ({ foundation: { pool, url } }) => {
    const jobs = (await knownJobs(pool)).filter(({ cron }) => cron !== null)
    const next = await nextRuns(url, jobs, Date.now())
    const listed = jobs.map((job) => ({
      name: job.name,
      purpose: job.purpose,
      cron: job.cron,
      running: job.active > 0,
      last_run_at: job.started_at,
      last_duration_seconds: secondsOf(job.duration_ms),
      last_outcome: job.state === null ? null : job.state === 'completed' ? 'succeeded' : 'failed',
      last_success_at: job.done_at,
      next_run_at: next.get(job.name) ?? null,
      failed_24h: job.failed_24h,
      dead_letters: job.dead_letters,
      seconds_max: job.expire_seconds,
      error: job.state === 'failed' ? job.message : null,
    }))
    return { json: listed }
  },
})

const said = {
  waiting: 'waiting for a process that runs jobs',
  waits_for_another: 'waiting for another run to end',
  running: 'running',
} as const satisfies Record<RunState['state'], string>

const runJob = command({
  name: 'jobs run',
  action: 'jobs.run',
  long: 'once',
  summary: 'run a scheduled job now, in a process with the role jobs, and wait for the result',
  input: z.object({ name: jobName() }),
  changes: { of: 'settings', asks: 'never' },
  plan: async ({ foundation }, { name: wanted }) => {
    const job = jobNamed(wanted, await knownJobs(foundation.pool))
    return `Run ${job.name} now, in a process with the role jobs.`
  },
  run: async ({ foundation, logger, operator: { actor }, progress }, { name: wanted }) => {
    const job = jobNamed(wanted, await knownJobs(foundation.pool))
    let last: RunState['state'] | undefined
    const onProgress = ({ state, seconds }: RunState): void => {
      progress(
        `${job.name} ${said[state]}  ${seconds} s`,
        state === last ? undefined : { job: job.name, state, seconds },
      )
      last = state
    }
    const { duration_ms, ...result } = await runNow(foundation, { job, logger, onProgress, actor })
    return {
      json: { job: job.name, ...result, duration_seconds: secondsOf(duration_ms) },
      failed: !result.succeeded,
    }
  },
})

const listDead = query({
  name: 'jobs dead',
  action: 'system.read',
  summary: 'list runs whose every attempt failed, with their errors; 20 runs per job are kept for 30 days',
  input: z.object({ name: jobName().optional() }),
  columns: [
    { name: 'id', label: 'Run', kind: 'id' },
    { name: 'job', label: 'Job' },
    { name: 'failed_at', label: 'Failed (UTC)', kind: 'instant' },
    { name: 'age_seconds', label: 'Age, s', kind: 'number' },
    { name: 'tries', label: 'Attempts', kind: 'number' },
    { name: 'error', label: 'Error', kind: 'whole' },
    { name: 'data', label: 'Input' },
    { name: 'done_since', label: 'Succeeded since' },
  ],
  empty: 'No dead letters',
  run: async ({ foundation: { pool } }, { name: wanted }) => {
    const job = wanted === undefined ? null : jobNamed(wanted, await knownJobs(pool)).name
    return { json: await deadLetters(pool, { job, max: listedMax }) }
  },
})

const retryDead = command({
  name: 'jobs retry',
  action: 'jobs.run',
  summary:
    'retry runs whose every attempt failed; several runs of a job with the same input are retried once',
  input: z.object({
    id: uuid({ label: 'Run', help: 'id of a run, as in "jobs dead"' }).optional(),
    all: flag({ label: 'All', help: 'every dead letter' }),
  }),
  changes: { of: 'settings', asks: 'never' },
  plan: async (_, input) => {
    const one = retried(input)
    return `Retry ${one === null ? 'every dead letter' : `the dead letter ${one}`}.`
  },
  run: async ({ foundation, logger, operator: { actor } }, input) => {
    const runs = await retryDeadLetters(foundation, { id: retried(input), logger, actor })
    return { json: { retried: runs } }
  },
})

/** The id of one dead letter; null for all of them. */
const retried = ({
  id: one,
  all,
}: {
  readonly id?: string | undefined
  readonly all: boolean
}): string | null => {
  if ((one === undefined) === !all) throw new InputFault('id', 'give the id of a dead letter, or --all')
  return one ?? null
}

const listWork = query({
  name: 'jobs work',
  action: 'finance.read',
  summary: 'list the long-running work of the last week, with progress and outcome',
  input: z.object({}),
  columns: [
    { name: 'job_id', label: 'Job', kind: 'work' },
    { name: 'name', label: 'Work' },
    { name: 'state', label: 'State' },
    { name: 'progress', label: 'Progress', kind: 'whole' },
    { name: 'requested_by', label: 'Requested by' },
    { name: 'requested_at', label: 'Requested (UTC)', kind: 'instant' },
    { name: 'ended_at', label: 'Ended (UTC)', kind: 'instant' },
    { name: 'error', label: 'Error', kind: 'whole' },
  ],
  empty: 'No long-running work has been requested',
  run: async ({ foundation: { pool } }) => {
    const listed = (await longWorks(pool, listedMax)).map((work) => {
      const { answer: _, figures: __, ...json } = longWorkJson(work)
      return json
    })
    return { json: listed }
  },
})

const showWork = query({
  name: 'jobs show',
  action: 'finance.read',
  // In the dashboard, a separate page shows the same information and follows the progress.
  interfaces: ['command line', 'admin API'],
  summary: 'show long-running work: its progress and, once it is done, its answer',
  input: z.object({
    id: uuid({ label: 'Job', help: 'id of long-running work, as in "jobs work"' }),
  }),
  run: async ({ foundation: { pool }, operator: { role } }, { id: asked }) => {
    const work = await longWork(pool, asked)
    if (work === null) throw new InputFault('id', `there is no long-running work ${asked}; see "jobs work"`)
    if (role !== null && !mayDo(role, work.action))
      throw new InputFault('id', `"${work.name}" requires the role ${rolesThatMay(work.action)}`)
    return { json: longWorkJson(work), failed: work.state === 'failed' || work.state === 'refused' }
  },
})

export const declarations = [listJobs, runJob, listDead, retryDead, listWork, showWork]
