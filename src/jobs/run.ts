import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { type ExpirableLotRow, expirableLots } from '../../projections/accounts.ts'
import { unbalancedAccounts } from '../../projections/ledger-lines.ts'
import { createActs } from '../administration/acts.ts'
import { verifyEventLog } from '../administration/checkpoints.ts'
import { uniqueCommandKey } from '../administration/credits.ts'
import { deadLetterQueue, pruneDeadLetters } from '../administration/jobs.ts'
import { organizationsOf } from '../administration/ledgers.ts'
import { reconcileLedgers } from '../administration/reconcile.ts'
import { recordReconciled } from '../administration/reconciliations.ts'
import {
  type Meters,
  type OpenCapability,
  type QueuedJob,
  type ScheduledJob,
  type SealedStore,
  usualJobSecondsMax,
} from '../call/capability.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { createOutage } from '../event-log/outage.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import { askedCheckpointJob } from '../event-log/tree/checkpoints.ts'
import type { LogFault, VerifiedUpTo } from '../event-log/verify/verify-log.ts'
import type { LogVerified } from '../events/operator.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { EpochKeys } from '../guard/epoch-keys.ts'
import { epochOf, isRetired, mayBeDestroyed } from '../guard/epochs.ts'
import { meterJobRuns } from '../metrics/jobs.ts'
import { queuedJobOptions } from './queue.ts'

/** Work by the clock, once per installation however many processes run it. pg-boss keeps queue and schedule. */
export type Jobs = { stop(): Promise<void> }

/** What capabilities have done later, and what they keep sealed. */
type CapabilityWork = {
  readonly jobs?: OpenCapability['jobs']
  readonly stores?: readonly SealedStore[]
  readonly meters?: Meters
}

const stopTimeoutMs = 10_000
/** The first checkpoint of a long log reads all of it. */
const checkpointSecondsMax = 3_600
/** The sums over all statements have half an hour, and connecting some more. */
const sumsSecondsMax = 2_100
const pollingSeconds = { scheduled: 30, queued: 5 } as const

/**
 * How runs by the clock are kept: one at a time, tried three times within about two minutes, and then a dead letter. What may have failed
 * of itself has passed by then; what has not needs a person, and the next run by the clock tries it anyway.
 */
const scheduledJobOptions = {
  retryLimit: 2,
  retryDelay: 30,
  retryBackoff: true,
  retryDelayMax: 120,
  deadLetter: deadLetterQueue,
  // A process that runs jobs hears of one at once: a person may be waiting for it.
  notify: true,
} as const
/** A dead letter that no one looked at in this time is forgotten. */
const deadLetterSeconds = 30 * 86_400

export const startJobs = async (
  foundation: Foundation,
  logger: Logger,
  { jobs = {}, stores = [], meters }: CapabilityWork = {},
): Promise<Jobs> => {
  const boss = new PgBoss({
    connectionString: foundation.url,
    application_name: 'jobs',
    max: 3,
    // One more connection; where a pooler in between does not pass notices on, jobs are looked for every 30 s as before.
    useListenNotify: true,
    // A migration makes it: this role may not.
    createSchema: false,
  })
  // It asks again every few seconds and does not say when it was answered.
  const queue = createOutage({ logger, what: 'jobs: the queue' })
  boss.on('error', queue.failed)
  await boss.start()
  await boss.createQueue(deadLetterQueue, { retentionSeconds: deadLetterSeconds })
  const all = { ...ownJobs(foundation, logger, stores), ...jobs }
  const observe = meters === undefined ? () => undefined : meterJobRuns(meters, Object.keys(all))
  const logged = async (name: string, run: () => Promise<unknown>): Promise<object> => {
    const startedAt = performance.now()
    const seconds = (): number => (performance.now() - startedAt) / 1_000
    try {
      const result = await run()
      observe(name, 'succeeded', seconds())
      logger.debug({ job: name, result }, 'job done')
      return typeof result === 'number' ? { did: result } : {}
    } catch (error) {
      observe(name, 'failed', seconds())
      logger.error({ err: error, job: name }, 'job failed')
      await pruneDeadLetters(foundation.pool).catch(() => undefined)
      throw error
    }
  }
  const schedule = async (
    name: string,
    { cron, run, portionMax, expireSeconds }: ScheduledJob,
  ): Promise<void> => {
    await boss.createQueue(name, { policy: 'singleton' })
    // A release before this one may have made it, with other options.
    await boss.updateQueue(name, { ...scheduledJobOptions, expireInSeconds: expireSeconds })
    await boss.schedule(name, cron)
    await boss.work(name, { pollingIntervalSeconds: pollingSeconds.scheduled }, () =>
      logged(name, () => (portionMax === undefined ? run() : inPortions(portionMax, run))),
    )
  }
  const serve = async (name: string, { run, concurrencyMax, expireSeconds }: QueuedJob): Promise<void> => {
    await boss.createQueue(name, queuedJobOptions)
    // The first `send` has made the queue, without knowing how long its jobs may take.
    await boss.updateQueue(name, { expireInSeconds: expireSeconds })
    await boss.work<{ data: string }>(
      name,
      {
        pollingIntervalSeconds: pollingSeconds.queued,
        // A worker takes the next job at once while many wait; otherwise the pauses would slow the queue down.
        burstWhenReadyExceeds: concurrencyMax,
        localConcurrency: concurrencyMax,
      },
      async ([job]) => logged(name, async () => (job === undefined ? null : run(job.data.data))),
    )
  }
  for (const [name, job] of Object.entries(all))
    await ('cron' in job ? schedule(name, job) : serve(name, job))
  // A release before this one may have scheduled jobs that nothing does any more.
  for (const { name } of await boss.getSchedules()) if (!(name in all)) await boss.unschedule(name)
  return { stop: () => boss.stop({ graceful: true, timeout: stopTimeoutMs }) }
}

const ownJobs = (
  foundation: Foundation,
  logger: Logger,
  stores: readonly SealedStore[],
): Record<string, ScheduledJob | QueuedJob> => {
  const checkpoint = async () => (await foundation.checkpoints.make()).size
  return {
    checkpoint: { cron: '7 * * * *', expireSeconds: checkpointSecondsMax, run: checkpoint },
    [askedCheckpointJob]: { run: checkpoint, concurrencyMax: 1, expireSeconds: checkpointSecondsMax },
    'expire-credits': {
      cron: '*/5 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () => expireCredits(foundation, Date.now()),
    },
    'forget-answers': {
      cron: '17 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () => inPortions(forgottenAtOnceMax, () => forgetAnswers(foundation.pool)),
    },
    reconcile: {
      cron: '43 * * * *',
      expireSeconds: sumsSecondsMax,
      run: () => reconcile(foundation.url, logger),
    },
    // Every day: all that came since ledgers were last found to agree with their read models and the tariff.
    'reconcile-ledgers': {
      cron: '37 2 * * *',
      expireSeconds: reconcileSecondsMax,
      run: () => reconcileOnward(foundation, logger),
    },
    // Every day: a chain that somebody broke is not found by those who only go on from its end. What was verified before is not read again.
    'verify-log': {
      cron: '11 4 * * *',
      expireSeconds: verifyLogSecondsMax,
      run: () => verifyLogOnward(foundation, logger),
    },
    'renew-seals': {
      cron: '3 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () =>
        renewSeals({
          keys: foundation.epochKeys,
          stores,
          clock: Date,
          databaseNowMs: () => databaseNowMs(foundation.pool),
          logger,
        }),
    },
  }
}

const databaseNowMs = async (pool: Foundation['pool']): Promise<number> => {
  const { rows } = await pool.query<{ now: Date }>('select now()')
  return rows[0]?.now.getTime() ?? Number.NaN
}

const lotsMax = 1_000
/** Where so many ledgers cannot be written, it is the event log that cannot. */
const failedMax = 20

/**
 * Writes off lots whose expiry has come by the clock of this process. Housekeeping: a lot is worth nothing from its expiry on, written off or not;
 * but statements should say so. A ledger that cannot be written keeps no other one waiting: it is named in what this throws at the
 * end. Returns how many lots were looked at.
 */
export const expireCredits = async (
  { pool, ledger }: Pick<Foundation, 'pool' | 'ledger'>,
  nowMs: number,
): Promise<number> => {
  const { text, values } = expirableLots({ nowMs, max: lotsMax })
  const { rows } = await pool.query<ExpirableLotRow>(text, [...values])
  const failed = new Map<string, unknown>()
  for (const { organization_id, grant_id, expires_at } of rows) {
    if (failed.has(organization_id)) continue
    try {
      await ledger.submit(organization_id, {
        // Of this time: a refund that was given just before the expiry may open the lot again after it was written off.
        key: uniqueCommandKey(`expire/${grant_id}`),
        // It is effective when the lot expired, whenever this job comes by.
        atMs: expires_at.getTime(),
        actor: 'system',
        kind: 'expire',
        grantId: grant_id,
      })
    } catch (error) {
      failed.set(organization_id, error)
      if (failed.size === failedMax) break
    }
  }
  if (failed.size === 0) return rows.length
  const [cause] = failed.values()
  throw new Error(`lots of ${[...failed.keys()].join(', ')} could not be written off`, { cause })
}

/** src/guides/idempotency.md, "Idempotency-Key": first answers are kept this long. That a key was used is kept for ever. */
const answerRetentionHours = 24
const forgottenAtOnceMax = 10_000

/** Forgets the bodies of old idempotent answers. Returns how many; call again while it returns the maximum. */
export const forgetAnswers = async (pool: pg.Pool): Promise<number> => {
  const { rowCount } = await pool.query(
    `update idempotent_calls set answer = null
      where (organization_id, key_hash) in (
        select organization_id, key_hash from idempotent_calls
         where answer is not null and answered_at < now() - $1 * interval '1 h' order by answered_at limit $2)`,
    [answerRetentionHours, forgottenAtOnceMax],
  )
  return rowCount ?? 0
}

/** As many portions as there are: what is promised to be forgotten in time is, however much it is. Returns how many. */
const inPortions = async (portionMax: number, run: () => Promise<number>): Promise<number> => {
  let forgotten = 0
  for (;;) {
    const portion = await run()
    forgotten += portion
    if (portion < portionMax) return forgotten
  }
}

type Renewal = { readonly resealed: number; readonly destroyed: readonly string[] }

/** Passes over a store: each finds only what was written under the old key during the one before. */
const passesMax = 100
/** Further apart and one of the two clocks is wrong: no key is destroyed by it. */
const clockDifferenceMaxMs = 15 * 60_000

/**
 * Ends epochs: what is still needed under a key of the past is sealed anew under the current one, then the key is destroyed.
 * `databaseNowMs` is a second opinion on the time: a host whose clock is a month early must not destroy the keys in use. */
export const renewSeals = async ({
  keys,
  stores,
  clock,
  databaseNowMs,
  logger,
}: {
  keys: Pick<EpochKeys, 'current' | 'list' | 'settleDestroyed'>
  stores: readonly SealedStore[]
  clock: { now(): number }
  databaseNowMs: () => Promise<number>
  logger: Pick<Logger, 'warn'>
}): Promise<Renewal> => {
  const nowMs = clock.now()
  const differenceMs = Math.abs((await databaseNowMs()) - nowMs)
  if (differenceMs > clockDifferenceMaxMs)
    throw new Error(
      `this host's clock and the database's differ by ${Math.round(differenceMs / 1_000)} s: no epoch key is destroyed before they agree`,
    )
  await keys.current()
  let resealed = 0
  const destroyed: string[] = []
  for (const key of await keys.list()) {
    if (key.state === 'destroyed') {
      for (const { name, drop } of stores) {
        const dropped = await drop(key.id)
        if (dropped > 0)
          logger.warn(
            { key: key.id, store: name, dropped },
            'epoch keys: what was under a destroyed key is gone',
          )
      }
      await keys.settleDestroyed(key)
      continue
    }
    if (key.state === 'lost' || !isRetired(key.epoch, epochOf(nowMs))) continue
    for (const store of stores) resealed += await resealAll(store, key.id)
    if (!mayBeDestroyed(key.epoch, nowMs)) continue
    await keys.settleDestroyed(key)
    destroyed.push(key.id)
  }
  return { resealed, destroyed }
}

const resealAll = async ({ name, reseal }: SealedStore, keyId: string): Promise<number> => {
  let all = 0
  for (let pass = 0; pass < passesMax; pass++) {
    const some = await reseal(keyId)
    all += some
    if (some === 0) return all
  }
  throw new Error(`${name}: something is sealed under ${keyId} again and again`)
}

type Unbalanced = {
  readonly organization_id: string
  readonly movements_micro: string
  readonly balance_micro: string
}

const deadlineMs = 30 * 60_000

/**
 * Compares two independent folds of the ledgers: the movements of every statement must add up to its account. Returns
 * the accounts where they do not, which must be none; null when the two projections stand at different positions.
 */
export const reconcile = async (url: string, logger: Logger): Promise<Unbalanced[] | null> => {
  // A connection of its own: the sums take as long as the statements are long, and must not hold up other queries.
  const client = new pg.Client({
    connectionString: url,
    statement_timeout: deadlineMs,
    application_name: 'reconcile',
  })
  client.on('error', () => undefined)
  await client.connect()
  try {
    await client.query('begin isolation level repeatable read read only')
    const positions = await client.query(
      `select 1 from projection_checkpoints where name in ('accounts', 'ledger_lines') group by position having count(*) = 2`,
    )
    if (positions.rows.length === 0) return null
    const { text, values } = unbalancedAccounts()
    const { rows } = await client.query<Unbalanced>(text, [...values])
    if (rows.length > 0) logger.fatal({ accounts: rows }, 'reconciliation: statements and balances disagree')
    return rows
  } finally {
    await client.query('rollback').catch(() => undefined)
    await client.end()
  }
}

/** Ten million calls take some minutes; a day's are a part of them. */
const reconcileSecondsMax = 6 * 3_600

/**
 * Compares what came since ledgers were last found to agree: log, read models and tariff. The result is an event; differences are
 * logged besides. Returns how many there are, which must be none.
 */
export const reconcileOnward = async (foundation: Foundation, logger: Logger): Promise<number> => {
  const organizations = await organizationsOf(foundation)
  const found = await reconcileLedgers(foundation, { organizations, onward: true })
  await recordReconciled(foundation, found, { whole: false, actor: 'system' })
  const differing = found.filter(({ differences }) => differences > 0)
  for (const { organizationId, differences, named } of differing)
    logger.fatal(
      { organizationId, differences, named },
      'reconciliation: log, read models and tariff disagree; see "ledger reconcile"',
    )
  return differing.reduce((sum, { differences }) => sum + differences, 0)
}

/** A run reads for `readMaxMs`; what comes after is much less. */
const verifyLogSecondsMax = 6 * 3_600
/** A log that takes longer is verified in as many runs as it needs. */
const readMaxMs = 2 * 3_600_000

const namedMax = 20
const nameCharsMax = 400

type Parts = Pick<Foundation, 'eventLog' | 'treeStore' | 'checkpoints'>

/**
 * Verifies the event log from the last checkpoint up to which a run before this one found no fault, as "event-log verify" does from the
 * beginning. What was found is an event; faults are logged besides. Returns how many there are, which must be none.
 */
export const verifyLogOnward = async (parts: Parts, logger: Logger): Promise<number> => {
  const last = await lastThrough(parts)
  const since = last !== null && (await isSigned(parts, last)) ? last : null
  const { events, streams, known, checkpoints, faults, after, through } = await verifyEventLog(parts, {
    since,
    readMaxMs,
  })
  const named = faults.slice(0, namedMax).map(nameOf)
  if (faults.length > 0)
    logger.fatal(
      { faults: faults.length, named },
      'the event log is not what was written; see "event-log verify"',
    )
  await appendNext(parts.eventLog, operatorStream, [
    encodeEvent(
      {
        type: 'LogVerified',
        data: {
          events,
          streams,
          known,
          checkpoints: checkpoints.recomputed,
          faults: faults.length,
          named,
          after,
          // The next run reads what is faulty again.
          through: faults.length > 0 ? since : await signed(parts, through),
        },
      },
      {
        id: eventIdOf(operatorStream, `verified/${randomUUID()}`, 0),
        actor: 'system',
        effectiveAt: new Date().toISOString(),
      },
    ),
  ])
  return faults.length
}

type Through = NonNullable<LogVerified['through']>

const lastThrough = async ({ eventLog }: Parts): Promise<Through | null> => {
  const newest = await createActs(eventLog, ['LogVerified']).newest('LogVerified')
  if (newest === undefined) return null
  const { type, data } = decodeEvent(newest)
  return type === 'LogVerified' ? data.through : null
}

/** Of its own kind, so that no signature of a checkpoint passes for one. */
const textOf = ({ origin, size, root }: VerifiedUpTo): string =>
  `enrichment-ledger verified log\n${origin}\n${size}\n${root}\n`

/** Null where the signing key is not here: then the next run reads the whole log. */
const signed = async ({ checkpoints }: Parts, through: VerifiedUpTo | null): Promise<Through | null> => {
  const signature = through === null ? null : await checkpoints.sign(textOf(through))
  return through === null || signature === null
    ? null
    : { ...through, key_id: signature.keyId, signature: signature.value }
}

/** An event that anyone with access to the database could append is not believed. */
const isSigned = ({ checkpoints }: Parts, through: Through): Promise<boolean> =>
  checkpoints.isSigned(textOf(through), { keyId: through.key_id, value: through.signature })

/** Of a stream's name, which other software may have written, only what an event takes as text. */
const nameOf = ({ stream, revision, fault }: LogFault): string =>
  `${stream}${revision === null ? '' : ` revision ${revision}`}: ${fault}`
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .slice(0, nameCharsMax)
