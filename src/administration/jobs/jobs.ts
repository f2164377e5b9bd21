import type pg from 'pg'

/** The queue of failed runs that are not attempted again. */
export const deadLetterQueue = 'dead-letters'

/** The queue of work that people request (see `long-work.ts`). */
export const longWorkQueue = 'long-work'

/**
 * A job of the queue, with its last finished run. Members that end in `_ms`, except `duration_ms`, are the number of milliseconds since that
 * time.
 */
export type JobRow = {
  readonly name: string
  /** What the job does; null if it runs only on request. */
  readonly purpose: string | null
  /** Null if the job runs only on request. */
  readonly cron: string | null
  readonly scheduled_ms: number | null
  readonly state: 'completed' | 'failed' | null
  readonly message: string | null
  readonly started_at: Date | null
  readonly duration_ms: number | null
  readonly ended_ms: number | null
  /** The end of the last successful run. */
  readonly done_ms: number | null
  readonly done_at: Date | null
  /** The number of runs in progress. */
  readonly active: number
  readonly failed_24h: number
  /** Failed runs without a later successful run. */
  readonly dead_letters: number
  /** A run counts as failed after this many seconds. */
  readonly expire_seconds: number
}

const jobsMax = 200

const jobs = `
  select q.name, s.data->>'purpose' as purpose, s.cron, extract(epoch from now() - s.created_on)::float8 * 1000 as scheduled_ms,
         l.state::text as state, coalesce(l.output->>'message', l.output->>'value') as message,
         l.started_on as started_at, extract(epoch from l.completed_on - l.started_on)::float8 * 1000 as duration_ms,
         extract(epoch from now() - l.completed_on)::float8 * 1000 as ended_ms,
         extract(epoch from now() - d.done_at)::float8 * 1000 as done_ms, d.done_at,
         (select count(*)::int from pgboss.job j where j.name = q.name and j.state = 'active') as active,
         (select count(*)::int from pgboss.job j
           where j.name = q.name and j.state = 'failed' and j.completed_on > now() - interval '24 h') as failed_24h,
         (select count(*)::int from pgboss.job j
           where j.name = $1 and j.source_name = q.name and j.state < 'active'
             and j.created_on > coalesce(d.done_at, '-infinity')) as dead_letters,
         q.expire_seconds
    from pgboss.queue q left join pgboss.schedule s on s.name = q.name and s.key = ''
    left join lateral (
      select j.state, j.output, j.started_on, j.completed_on from pgboss.job j
       where j.name = q.name and j.state in ('completed', 'failed') order by j.completed_on desc nulls last limit 1) l on true
    left join lateral (
      select max(j.completed_on) as done_at from pgboss.job j where j.name = q.name and j.state = 'completed') d on true
   where q.name not like '\\_\\_%' and q.name not in ($1, '${longWorkQueue}')
   order by q.name limit ${jobsMax}`

/** All jobs, by name; empty if no process with the role jobs has ever started. */
export const knownJobs = async (pool: Pick<pg.Pool, 'query'>): Promise<JobRow[]> =>
  (await queueMade(pool)) ? (await pool.query<JobRow>(jobs, [deadLetterQueue])).rows : []

export const queueMade = async (pool: Pick<pg.Pool, 'query'>): Promise<boolean> => {
  const { rows } = await pool.query<{ made: boolean }>(
    `select to_regclass('pgboss.schedule') is not null and to_regclass('pgboss.job') is not null as made`,
  )
  return rows[0]?.made === true
}

/** The maximum number of dead letters kept for a job. Jobs are idempotent, so it is enough to retry the newest. */
const deadLettersKeptMax = 20

/** Deletes the oldest dead letters of each job, so that a job that fails every minute does not fill the disk. */
export const pruneDeadLetters = async (pool: Pick<pg.Pool, 'query'>): Promise<void> => {
  await pool.query(
    `delete from pgboss.job where name = $1 and id in (
       select id from (
         select id, row_number() over (partition by source_name order by created_on desc, id) as nth
           from pgboss.job where name = $1 and state < 'active') ranked
        where nth > $2)`,
    [deadLetterQueue, deadLettersKeptMax],
  )
}

type DeadLetter = {
  readonly id: string
  readonly job: string
  readonly failed_at: Date
  readonly age_seconds: number
  readonly tries: number
  readonly error: string | null
  /** The input of the job, as JSON; null if the job has none. */
  readonly data: string | null
  /** True if a later run of the job has succeeded, so that the work of this run is done. */
  readonly done_since: boolean
}

/** Dead letters, newest first; if a job is given, only its own. */
export const deadLetters = async (
  pool: Pick<pg.Pool, 'query'>,
  { job, max }: { job: string | null; max: number },
): Promise<DeadLetter[]> => {
  if (!(await queueMade(pool))) return []
  const { rows } = await pool.query<DeadLetter>(
    `select d.id, d.source_name as job, d.created_on as failed_at, extract(epoch from now() - d.created_on)::int as age_seconds,
            coalesce(d.source_retry_count, 0) + 1 as tries,
            coalesce(d.source_output->>'message', d.source_output->>'value', d.source_output::text) as error,
            nullif(d.data - 'purpose', '{}')::text as data,
            exists (select from pgboss.job j where j.name = d.source_name and j.state = 'completed'
                       and j.completed_on > d.created_on) as done_since
       from pgboss.job d
      where d.name = $1 and d.state < 'active' and d.source_name is not null and ($2::text is null or d.source_name = $2)
      order by d.created_on desc, d.id limit $3`,
    [deadLetterQueue, job, max],
  )
  return rows
}
