import { labelOf } from '../administration/input.ts'
import { type DeadLetter, deadLetters, type JobRow, knownJobs } from '../administration/jobs/jobs.ts'
import { nearest } from '../foundation/nearest.ts'
import { nextRuns, type RunState, retryDeadLetters, runNow } from '../jobs/now.ts'
import { type Command, type CommandContext, type Given, UsageError } from './command.ts'
import { cut, table } from './table.ts'

const listedMax = 1_000
const errorCharsMax = 80
const nameMax = 64

const secondsOf = (ms: number | null): number | null => (ms === null ? null : Math.round(ms) / 1_000)

const list: Command = {
  name: 'jobs list',
  summary:
    'the work that is done by the clock: last run and what became of it, next run, failures, dead letters',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => {
    const { pool, url } = await foundation()
    const jobs = (await knownJobs(pool)).filter(({ cron }) => cron !== null)
    const next = await nextRuns(url, jobs, Date.now())
    const listed = jobs.map((job) => ({
      name: job.name,
      cron: job.cron,
      running: job.active > 0,
      last_run_at: job.started_at?.toISOString() ?? null,
      last_duration_seconds: secondsOf(job.duration_ms),
      last_outcome: job.state === null ? null : job.state === 'completed' ? 'succeeded' : 'failed',
      last_success_at: job.done_at?.toISOString() ?? null,
      next_run_at: next.get(job.name)?.toISOString() ?? null,
      failed_24h: job.failed_24h,
      dead_letters: job.dead_letters,
      seconds_max: job.expire_seconds,
      error: job.state === 'failed' ? job.message : null,
    }))
    const shown = listed.map(({ error, last_success_at: _, seconds_max: __, ...row }) => ({
      ...row,
      error: error === null ? null : cut(error, errorCharsMax),
    }))
    return {
      json: listed,
      lines:
        listed.length === 0
          ? ['no job was ever scheduled: start a process with the role jobs']
          : table(shown),
    }
  },
}

/** The job of that name. Throws `UsageError` with the most similar name. */
const jobNamed = (name: string, known: readonly JobRow[]): JobRow => {
  const job = known.find((one) => one.name === name)
  if (job !== undefined) return job
  const names = known.filter(({ cron }) => cron !== null).map((one) => one.name)
  const meant = nearest(name, names)
  throw new UsageError(
    names.length === 0
      ? `there is no job "${name}": no process with the role jobs ever started`
      : `there is no job "${name}"${meant === null ? '.' : `; is ${meant} meant?`} There are ${names.join(', ')}`,
  )
}

const said = {
  waiting: 'waits for a process that runs jobs',
  waits_for_another: 'waits for a run that is under way',
  running: 'runs',
} as const satisfies Record<RunState['state'], string>

/** On a terminal a line that is overwritten; with `--json` a JSON line on standard error for each change of state. */
const teller = ({ json, progress }: Pick<CommandContext, 'json' | 'progress'>, job: string) => {
  let last: RunState['state'] | undefined
  return ({ state, seconds }: RunState): void => {
    if (!json) progress(`${job} ${said[state]}  ${seconds} s`)
    else if (state !== last) process.stderr.write(`${JSON.stringify({ job, state, seconds })}\n`)
    last = state
  }
}

const run: Command = {
  name: 'jobs run',
  summary:
    'have a job of the clock run now, in a process with the role jobs, and wait for what becomes of it',
  parameters: [{ name: 'name', help: 'as "jobs list" says', required: true }],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'The job runs on where it runs: "jobs list" says what becomes of it.',
    plan: async ({ foundation }, given) => {
      const name = labelOf('name', given.required('name'), nameMax)
      const job = jobNamed(name, await knownJobs((await foundation()).pool))
      return { says: [`Have ${job.name} run now, in a process with the role jobs.`] }
    },
  },
  run: async (context, given) => {
    const name = labelOf('name', given.required('name'), nameMax)
    const foundation = await context.foundation()
    const job = jobNamed(name, await knownJobs(foundation.pool))
    const result = await runNow(foundation, {
      job,
      logger: context.logger,
      onProgress: teller(context, name),
      ...foundation.operator,
    })
    const { duration_ms, ...told } = result
    const seconds = secondsOf(duration_ms)
    return {
      json: { job: name, ...told, duration_seconds: seconds },
      failed: !result.succeeded,
      lines: [
        result.succeeded ? `${name} succeeded in ${seconds ?? 0} s` : `${name} failed: ${result.error}`,
      ],
    }
  },
}

const deadLetterJson = (one: DeadLetter) => ({
  id: one.id,
  job: one.job,
  failed_at: one.failed_at.toISOString(),
  age_seconds: Math.round(one.age_ms / 1_000),
  tries: one.tries,
  error: one.error,
  data: one.data,
  done_since: one.done_since,
})

const dead: Command = {
  name: 'jobs dead',
  summary:
    'runs that failed at every try and were given up, with their errors; kept for 30 days, 20 of each job',
  parameters: [{ name: 'name', help: 'of this job only' }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const { pool } = await foundation()
    const name = given.text('name')
    const job = name === undefined ? null : jobNamed(name, await knownJobs(pool)).name
    const listed = (await deadLetters(pool, { job, max: listedMax })).map(deadLetterJson)
    return {
      json: listed,
      lines:
        listed.length === 0
          ? ['there are no dead letters']
          : table(listed.map((one) => ({ ...one, error: one.error && cut(one.error, errorCharsMax) }))),
    }
  },
}

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Null: all jobs. */
const retriedIn = (given: Given): string | null => {
  const id = given.text('id')
  if ((id === undefined) === !given.flag('all'))
    throw new UsageError('name one dead letter by its id, or give --all')
  if (id !== undefined && !uuidPattern.test(id))
    throw new UsageError(`"${id}" is no id of a dead letter; "jobs dead" lists them`)
  return id ?? null
}

const retry: Command = {
  name: 'jobs retry',
  summary: 'ask anew for runs that were given up; of several of a job that were to do the same, one',
  parameters: [
    { name: 'id', help: 'of one dead letter, as "jobs dead" says' },
    { name: 'all', help: 'every dead letter', kind: 'flag' },
  ],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'Some runs may be asked for: "jobs dead" shows the others.',
    plan: async (_, given) => {
      const id = retriedIn(given)
      return {
        says: [`Ask anew for ${id === null ? 'every run that was' : `the run ${id}, which was`} given up.`],
      }
    },
  },
  run: async ({ foundation, logger }, given) => {
    const id = retriedIn(given)
    const open = await foundation()
    const retried = await retryDeadLetters(open, { id, logger, ...open.operator })
    return {
      json: { retried },
      lines: retried.map(
        ({ job, runs }) => `${job}: ${runs === 1 ? 'one run is' : `${runs} runs are`} asked for`,
      ),
    }
  },
}

export const jobsCommands: readonly Command[] = [list, run, dead, retry]
