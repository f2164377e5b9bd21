import type pg from 'pg'
import { areConnectionsUsedUp, moreConnections } from '../../foundation/database-connection.ts'
import { markSentences, readMark } from '../../foundation/installation-mark.ts'
import { pendingMigrations } from '../../foundation/migrate.ts'
import { liveProcesses, type Process } from '../../foundation/processes.ts'
import { pendingDeliveries } from '../../webhooks/outbox.ts'
import { type JobRow, knownJobs } from '../jobs/jobs.ts'
import { type Check, durationText, type Found, fine, measured, reasonOf, wrong } from './check.ts'

/** Checks of the database, and of the jobs, webhooks, processes and clocks recorded in its rows. */

export type InDatabase = {
  readonly pool: pg.Pool
  /** The name of the database in messages; null if messages do not name it. */
  readonly where: string | null
  /** Whether this process counts rate limits together with other processes; null if shared rate limits are not configured. */
  readonly rateLimitsShared?: (() => boolean) | null
}

const hour = 3_600
const versionMin = 160_000

export const databaseCheck: Check<InDatabase> = {
  name: 'database',
  severity: 'fault',
  advice:
    'Check that PostgreSQL is running, and that the address, user and password in DATABASE_URL are right.',
  advisesUnseen: true,
  readiness: { name: 'database', counts: 'always' },
  look: async ({ pool, where }) => {
    const asked = await pool
      .query<{ version: string; number: number; name: string }>(
        `select current_setting('server_version') as version, current_setting('server_version_num')::int as number, current_database() as name`,
      )
      .catch((error: unknown) => ({ error }))
    if ('error' in asked)
      return wrong(
        `${where ?? 'it'} does not answer: ${reasonOf(asked.error)}`,
        areConnectionsUsedUp(asked.error) ? { advice: moreConnections } : {},
      )
    const [{ version, number, name } = { version: '', number: 0, name: '' }] = asked.rows
    const says = `PostgreSQL ${version}${where === null ? '' : ` ${where}`}, database ${name}`
    if (number >= versionMin) return fine(says)
    const advice =
      'Move to PostgreSQL 16 or newer: use pg_dump on the old server, and restore the dump on the new one.'
    return wrong(`${says}: it is too old`, { advice })
  },
}

/** Checks of rows that are cheap enough to be read every second. */
export const rowChecks: readonly Check<InDatabase>[] = [
  {
    name: 'processes',
    severity: 'warning',
    advice: 'Set REDIS_URL to one Redis for all processes, and check that Redis is running.',
    readiness: { name: 'rate_limiter', counts: 'never' },
    gauges: {
      rate_limiter_degraded:
        '1 while the shared counters do not work and the process counts rate limits alone',
    },
    look: async ({ pool, rateLimitsShared = null }) => {
      const live = await liveProcesses(pool)
      const away = rateLimitsShared !== null && !rateLimitsShared()
      const apart = away ? 'Redis does not answer' : countingApart(live)
      return {
        found: processesFound(live.length, apart),
        samples: { rate_limiter_degraded: [{ value: away ? 1 : 0 }] },
        ready: apart !== null ? 'warning' : rateLimitsShared === null ? null : 'ok',
        details: apart === null ? {} : { detail: apart },
      }
    },
  },
  {
    name: 'jobs',
    severity: 'fault',
    bound: { unit: 'seconds', warning: 50 * hour },
    advice: 'Check that a process with the role "jobs" is running, and read its log.',
    gauges: {
      jobs_last_success_timestamp_seconds:
        'Time of the last successful run of the job, in any process; absent if it never succeeded',
      jobs_success_age_seconds:
        'Seconds since a scheduled job last succeeded; before that, since it was scheduled',
      jobs_dead_letters: 'Failed runs of the job without a later successful run',
    },
    labels: ['name'],
    look: async ({ pool }) => {
      const rows = await knownJobs(pool)
      const by = (value: (row: JobRow) => number | null) =>
        rows.flatMap((row) => {
          const found = value(row)
          return found === null ? [] : [{ labels: { name: row.name }, value: found }]
        })
      return {
        found: jobsFound(rows),
        samples: {
          jobs_last_success_timestamp_seconds: by(({ done_at }) => done_at && done_at.getTime() / 1_000),
          jobs_success_age_seconds: by(ageOf),
          jobs_dead_letters: by(({ dead_letters }) => dead_letters),
        },
      }
    },
  },
  {
    name: 'webhooks',
    severity: 'warning',
    bound: { unit: 'seconds', warning: hour },
    advice:
      '"webhook list" shows failing webhooks and the reasons; a successful "webhook test" enables a webhook again. If no webhook fails, check that a process with the role "jobs" is running.',
    gauges: {
      webhook_pending_messages: 'Messages to webhooks waiting for their first or next attempt',
      webhook_oldest_pending_seconds: 'Age of the oldest waiting message',
      webhook_disabled: 'Webhooks disabled because they failed for days or answered 410',
    },
    look: async ({ pool }) => {
      const { count, oldestSeconds, disabled } = await pendingDeliveries(pool)
      const found = [
        measured(
          oldestSeconds,
          count === 0
            ? 'no messages are waiting'
            : `waiting messages: ${count}, the oldest for ${durationText(oldestSeconds * 1_000)}`,
        ),
      ]
      if (disabled > 0)
        found.push(
          wrong(`disabled webhooks: ${disabled}; every attempt failed for days, or they answered 410`),
        )
      return {
        found,
        samples: {
          webhook_pending_messages: [{ value: count }],
          webhook_oldest_pending_seconds: [{ value: oldestSeconds }],
          webhook_disabled: [{ value: disabled }],
        },
      }
    },
  },
  {
    name: 'clocks',
    severity: 'warning',
    // The job that ends epochs refuses to run if the difference is above the bound for faults.
    bound: { unit: 'seconds', warning: 2, fault: hour / 4 },
    advice: 'Let NTP set the clock on every host: timedatectl set-ntp true, or chrony.',
    look: async ({ pool }) => {
      const processes = await liveProcesses(pool)
      const askedMs = Date.now()
      const { rows } = await pool.query<{ now: Date }>('select clock_timestamp() as now')
      const nowMs = rows[0]?.now.getTime() ?? Number.NaN
      // The database's clock was read at an unknown moment during the query, so a difference of up to the query's duration is ignored.
      const ownMs = nowMs < askedMs ? askedMs - nowMs : Math.min(0, Date.now() - nowMs)
      return [
        aheadFound("this host's clock", ownMs),
        ...processes.map(({ host, pid, clockAheadMs }) =>
          aheadFound(`the clock of process ${pid} on ${host}`, clockAheadMs ?? 0),
        ),
      ]
    },
  },
]

/** Only "doctor" runs these checks, because their results do not change while the service runs. */
export const settingChecks: readonly Check<InDatabase>[] = [
  {
    name: 'database settings',
    severity: 'fault',
    advice: 'Change the setting in PostgreSQL: alter system set …, then select pg_reload_conf().',
    look: async ({ pool }) => {
      const { rows } = await pool.query<{
        off: string[] | null
        standby: boolean
        used: number
        max: number
      }>(
        `select (select array_agg(name order by name) from pg_settings
                  where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off') as off,
                pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as standby,
                current_setting('max_connections')::int as max,
                (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as used`,
      )
      const [{ off, standby, used, max } = { off: null, standby: false, used: 0, max: 1 }] = rows
      const found = (off ?? []).map((name) => wrong(`${name} is off: a crash of the server can lose data`))
      if (standby)
        found.push(
          wrong('the server does not accept writes: it is a standby or read-only', {
            advice: 'Point DATABASE_URL at the primary, or promote this server.',
          }),
        )
      const connections = `${used} of ${max} connections are in use`
      if (used > max * connectionShareMax)
        found.push(
          wrong(connections, {
            severity: 'warning',
            advice: moreConnections,
          }),
        )
      return found.length > 0
        ? found
        : fine(`a crash does not lose answered calls; ${connections}`, {
            connections: used,
            connections_max: max,
          })
    },
  },
  {
    name: 'database rights',
    severity: 'warning',
    advice:
      'Give the service its own role: see "How do I give the service its own database role?" in the deployment guide.',
    look: async ({ pool }) => {
      const { rows } = await pool.query<{ role: string; changes: boolean | null }>(
        `select current_user as role, has_table_privilege(c.oid, 'update, delete, truncate') or pg_has_role(current_user, c.relowner, 'member') as changes
           from pg_class c where c.oid = to_regclass('log_segments')`,
      )
      return rows.map(({ role, changes }) =>
        changes
          ? wrong(`the service uses the role ${role}, which can change the event log`)
          : fine(`the role ${role} cannot change the event log`),
      )
    },
  },
  {
    name: 'migrations',
    severity: 'fault',
    advice: 'Run "migrate" with this release; every start also migrates, as the owner of the schema.',
    look: async ({ pool }) => {
      try {
        const pending = await pendingMigrations(pool)
        return pending.length === 0 ? fine('all are applied') : wrong(`missing: ${pending.join(', ')}`)
      } catch (error) {
        return wrong(reasonOf(error), { advice: 'Start the release that this database belongs to.' })
      }
    },
  },
  {
    name: 'installation',
    severity: 'fault',
    advice: 'Start the installation that replaced it.',
    look: async ({ pool }) => {
      const mark = await readMark(pool)
      if (mark === null) return []
      const [says, advice] = markSentences(mark)
      return wrong(says, { advice })
    },
  },
]

const connectionShareMax = 0.9

/**
 * The reason why each process counts rate limits separately, which multiplies the limits; null if all processes with the role "api" share one
 * count.
 */
export function countingApart(processes: readonly Pick<Process, 'counters' | 'roles'>[]): string | null {
  const api = processes.filter(({ roles }) => roles.includes('api'))
  const places = new Set(api.map(({ counters }) => counters)).size
  return places < 2
    ? null
    : `each of ${places} processes keeps its own counts; set REDIS_URL to the same Redis for all processes`
}

function processesFound(live: number, apart: string | null): Found {
  if (apart !== null) return wrong(`rate limits: ${apart}`)
  if (live > 0) return fine(`running api processes: ${live}`)
  const advice = 'Start one: npm start.'
  return wrong('no api process is running, according to the database', { advice })
}

/** Seconds since a scheduled job last succeeded, or was scheduled; null for any other job. */
const ageOf = ({ cron, done_ms, scheduled_ms }: JobRow): number | null =>
  cron === null ? null : (done_ms ?? scheduled_ms ?? 0) / 1_000

const messageCharsMax = 200

function jobsFound(rows: readonly JobRow[]): Found[] {
  if (rows.length === 0)
    return [
      wrong('no job has been scheduled', {
        severity: 'warning',
        advice: 'Start a process with the role "jobs".',
      }),
    ]
  const failed = rows
    .filter(({ state }) => state === 'failed')
    .map(({ name, cron, message, ended_ms }) =>
      wrong(
        `${name} failed ${durationText(ended_ms ?? 0)} ago: ${reasonOf(message ?? 'no reason was recorded').slice(0, messageCharsMax)}`,
        { severity: cron === null ? 'warning' : 'fault' },
      ),
    )
  // If one job is late, usually all of them are, and for the same reason.
  const [oldest] = rows.toSorted((a, b) => (ageOf(b) ?? 0) - (ageOf(a) ?? 0))
  const seconds = (oldest && ageOf(oldest)) ?? 0
  return [
    ...failed,
    measured(
      seconds,
      `scheduled jobs: ${rows.filter(({ cron }) => cron !== null).length}; ${
        oldest?.done_ms == null
          ? `${oldest?.name} was scheduled ${durationText(seconds * 1_000)} ago and has not completed its first run yet`
          : `the oldest success is ${durationText(seconds * 1_000)} old (${oldest.name})`
      }`,
    ),
  ]
}

function aheadFound(whose: string, aheadMs: number): Found {
  const way = aheadMs > 0 ? 'ahead of' : 'behind'
  return measured(Math.abs(aheadMs) / 1_000, `${whose} is ${durationText(aheadMs)} ${way} the database's`, {
    figures: { ahead_ms: Math.round(aheadMs) },
  })
}
