import pg from 'pg'
import type { Logger } from 'pino'
import { expirableLots } from '../../projections/accounts.ts'
import { type UnbalancedRow, unbalancedAccounts } from '../../projections/ledger-lines.ts'
import { createActs } from '../administration/acts.ts'
import { uniqueCommandKey } from '../administration/credits/credits.ts'
import { verifyEventLog } from '../administration/event-log/checkpoints.ts'
import { organizationsOf } from '../administration/ledgers/ledgers.ts'
import { reconcileLedgers } from '../administration/ledgers/reconcile.ts'
import { recordReconciled } from '../administration/ledgers/reconciliations.ts'
import { recordOperation } from '../administration/operator-events.ts'
import type { QueuedJob, ScheduledJob, SealedStore } from '../call/capability.ts'
import { rowsOf } from '../concurrency/query.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { askedCheckpointJob } from '../event-log/tree/checkpoints.ts'
import type { LogFault, VerifiedUpTo } from '../event-log/verify/verify-log.ts'
import type { LogVerified } from '../events/operator.ts'
import { agreedNowMs, databaseNowMs, requireAgreement } from '../foundation/clocks.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { EpochKeys } from '../guard/secrets/epoch-keys.ts'
import { epochOf, isRetired, mayBeDestroyed } from '../guard/secrets/epochs.ts'

/** The work of the jobs that every installation runs. */

/** The first checkpoint of a long log reads the whole log. */
const checkpointSecondsMax = 3_600
/** Half an hour to add up all statements (`deadlineMs`), plus the time to connect. */
const sumsSecondsMax = 2_100

/** The jobs that do not belong to a capability, by name. */
export const ownJobs = (
  foundation: Foundation,
  logger: Logger,
  stores: readonly SealedStore[],
): Record<string, ScheduledJob | QueuedJob> => {
  const checkpoint = async () => (await foundation.checkpoints.make()).size
  return {
    checkpoint: {
      purpose: 'signs the state of the event log',
      cron: '7 * * * *',
      expireSeconds: checkpointSecondsMax,
      run: checkpoint,
    },
    [askedCheckpointJob]: { run: checkpoint, concurrencyMax: 1, expireSeconds: checkpointSecondsMax },
    'expire-credits': {
      purpose: 'writes off credits that have expired',
      cron: '*/5 * * * *',
      run: () => expireDueCredits(foundation),
    },
    'forget-answers': {
      purpose: 'deletes answers kept for repeated calls, after 24 hours',
      cron: '17 * * * *',
      portionMax: forgottenAtOnceMax,
      run: () => forgetAnswers(foundation.pool),
    },
    reconcile: {
      purpose: 'compares the balances with the sums of the ledger lines',
      cron: '43 * * * *',
      expireSeconds: sumsSecondsMax,
      run: () => reconcile(foundation.url, logger),
    },
    'reconcile-ledgers': {
      purpose: 'compares new events with the read models and the prices',
      cron: '37 2 * * *',
      expireSeconds: reconcileSecondsMax,
      run: () => reconcileOnward(foundation, logger),
    },
    // Detects changes to old events, which a reader that continues from the end of a chain does not. Verified events are not read again.
    'verify-log': {
      purpose: 'verifies the hash chains of new events',
      cron: '11 4 * * *',
      expireSeconds: verifyLogSecondsMax,
      run: () => verifyLogOnward(foundation, logger),
    },
    'renew-seals': {
      purpose: 'seals stored secrets with the current key, and destroys old keys',
      cron: '3 * * * *',
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

/** Writes off the lots that have expired now. Throws `CommandRefused` if this host's clock or the database's is wrong. */
export const expireDueCredits = async (foundation: Pick<Foundation, 'pool' | 'ledger'>): Promise<number> =>
  expireCredits(foundation, await agreedNowMs(foundation.pool, 'no credits are written off'))

const lotsMax = 10_000
/** A run ends after this time, and the next run continues. Many lots expire at the same time, such as at the end of a year. */
const writeOffMaxMs = 10 * 60_000
/** If appending to this many ledgers has failed, the fault is in the event log itself, so the job stops. */
const failedMax = 20

/**
 * Writes off expired lots, so that statements show the expiry. (An expired lot cannot be used even before it is written off.) If a ledger
 * cannot be written, the job continues with the others and then fails with an error that lists it. Returns the number of checked lots.
 */
export const expireCredits = async (
  { pool, ledger }: Pick<Foundation, 'pool' | 'ledger'>,
  nowMs: number,
  { maxMs = writeOffMaxMs }: { readonly maxMs?: number } = {},
): Promise<number> => {
  const startedAt = performance.now()
  const rows = await rowsOf(pool, expirableLots({ nowMs, max: lotsMax }))
  const failed = new Map<string, unknown>()
  let checked = 0
  for (const { organization_id, grant_id, expires_at } of rows) {
    if (performance.now() - startedAt >= maxMs) break
    checked++
    if (failed.has(organization_id)) continue
    try {
      await ledger.submit(organization_id, {
        // The key is unique to this run, because a refund that takes effect before the expiry can reopen a lot that was already written off.
        key: uniqueCommandKey(`expire/${grant_id}`),
        // The write-off takes effect at the lot's expiry, even if this job runs later.
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
  if (failed.size === 0) return checked
  const [cause] = failed.values()
  throw new Error(
    `the expired lots of ${[...failed.keys()].join(', ')} could not be written off; the next run tries again`,
    { cause },
  )
}

/** How long the answer to an Idempotency-Key is stored (src/guides/idempotency.md). The key of a charged call stays reserved forever. */
const answerRetentionHours = 24
const forgottenAtOnceMax = 10_000

/**
 * Deletes the stored answers of old idempotent calls and returns their number. The keys of free calls become available again. Call it again until
 * it returns fewer than `forgottenAtOnceMax`.
 */
export const forgetAnswers = async (pool: pg.Pool): Promise<number> => {
  const { rows } = await pool.query<{ forgotten: number }>(
    `with old as materialized (
       select organization_id, key_hash from idempotent_calls
        where answer is not null and answered_at < now() - $1 * interval '1 h' order by answered_at limit $2),
     free as (
       delete from idempotent_calls c using old
        where (c.organization_id, c.key_hash) = (old.organization_id, old.key_hash) and c.paid_revision is null returning 1),
     charged as (
       update idempotent_calls c set answer = null from old
        where (c.organization_id, c.key_hash) = (old.organization_id, old.key_hash) and c.paid_revision is not null returning 1)
     select ((select count(*) from free) + (select count(*) from charged))::integer as forgotten`,
    [answerRetentionHours, forgottenAtOnceMax],
  )
  return rows[0]?.forgotten ?? 0
}

type Renewal = { readonly resealed: number; readonly destroyed: readonly string[] }

/** The maximum number of passes over a store. Each pass after the first finds only data written under the old key during the previous pass. */
const passesMax = 100

/**
 * Ends epochs: reseals data that is still needed under the current key, and then destroys the old key. The comparison with the database's
 * clock prevents a host whose clock is a month fast from destroying keys that are in use.
 */
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
  requireAgreement({ nowMs, databaseMs: await databaseNowMs() }, 'no epoch key is destroyed')
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
            'epoch keys: data sealed under a destroyed key was deleted, because it can no longer be opened',
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
  throw new Error(`${name}: new data is still being sealed under ${keyId}`)
}

const deadlineMs = 30 * 60_000

/**
 * Compares two projections of the ledgers: the lines of each account's statements must add up to its balance. Returns the accounts that
 * differ (there must be none), or null if the two projections are at different positions.
 */
const reconcile = async (url: string, logger: Logger): Promise<UnbalancedRow[] | null> => {
  // Adding up long statements takes time and must not delay other queries, so it uses its own connection.
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
    const rows = await rowsOf(client, unbalancedAccounts())
    if (rows.length > 0) logger.fatal({ accounts: rows }, 'reconciliation: statements and balances disagree')
    return rows
  } finally {
    await client.query('rollback').catch(() => undefined)
    await client.end()
  }
}

/** A generous limit: comparing ten million calls takes a few minutes, and a day has far fewer. */
const reconcileSecondsMax = 6 * 3_600

/**
 * Compares the event log with the read models and the tariff, starting where they last agreed. Records the result as an event and logs any
 * differences. Returns the number of differences, which must be 0.
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

/** A run reads for at most `readMaxMs`. The rest of its work takes much less time. */
const verifyLogSecondsMax = 6 * 3_600
/** How long one run reads. The next run continues with the rest of a longer log. */
const readMaxMs = 2 * 3_600_000

const namedMax = 20
const nameCharsMax = 400

type Parts = Pick<Foundation, 'eventLog' | 'treeStore' | 'checkpoints'>

/**
 * Verifies the event log as "event-log verify" does, but starts at the last checkpoint that an earlier run reached without a fault. Records
 * the result as an event and logs any faults. Returns the number of faults, which must be 0.
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
      'the event log differs from what was written; see "event-log verify"',
    )
  const data = {
    events,
    streams,
    known,
    checkpoints: checkpoints.recomputed,
    faults: faults.length,
    named,
    after,
    // After a fault, the next run reads the faulty part again.
    through: faults.length > 0 ? since : await signed(parts, through),
  }
  await recordOperation(parts.eventLog, { type: 'LogVerified', data }, { actor: 'system' })
  return faults.length
}

type Through = NonNullable<LogVerified['through']>

const lastThrough = async ({ eventLog }: Parts): Promise<Through | null> => {
  const newest = await createActs(eventLog, ['LogVerified']).newest('LogVerified')
  if (newest === undefined) return null
  const { type, data } = decodeEvent(newest)
  return type === 'LogVerified' ? data.through : null
}

/** The text to sign. It has its own format, so that a checkpoint's signature cannot be used for it. */
const textOf = ({ origin, size, root }: VerifiedUpTo): string =>
  `enrichment-ledger verified log\n${origin}\n${size}\n${root}\n`

/** Signs the checkpoint that a run has reached. Null: the signing key is missing, so the next run reads the whole log. */
const signed = async ({ checkpoints }: Parts, through: VerifiedUpTo | null): Promise<Through | null> => {
  const signature = through === null ? null : await checkpoints.sign(textOf(through))
  return through === null || signature === null
    ? null
    : { ...through, key_id: signature.keyId, signature: signature.value }
}

/** Anyone with access to the database could append a `LogVerified` event, so its checkpoint is trusted only if it is signed. */
const isSigned = ({ checkpoints }: Parts, through: Through): Promise<boolean> =>
  checkpoints.isSigned(textOf(through), { keyId: through.key_id, value: through.signature })

/** The stream's name may come from other software, so characters that an event does not allow are removed. */
const nameOf = ({ stream, revision, fault }: LogFault): string =>
  `${stream}${revision === null ? '' : ` revision ${revision}`}: ${fault}`
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .slice(0, nameCharsMax)
