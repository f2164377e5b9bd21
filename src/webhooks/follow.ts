import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import { inTransaction } from '../concurrency/transaction.ts'
import {
  type EventLog,
  type LogPlace,
  LogRewritten,
  logStart,
  placeOf,
  type RecordedEvent,
} from '../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../event-log/stored-event.ts'
import { operatorStream, organizationOfStream } from '../events/streams.ts'
import { createHeldWork, type HeldWork } from '../projector/held-work.ts'
import { type Balance, noticedTypes, noticeOf } from './notices.ts'
import { writeMessages } from './outbox.ts'

type Settings = {
  readonly pool: pg.Pool
  readonly eventLog: EventLog
  readonly logger: Logger
  /** Unique among the processes that use the database. */
  readonly owner: string
  readonly clock: { now(): number }
  /** Called with the webhooks that have new messages. Never rejects. */
  readonly put: (webhookIds: readonly string[]) => Promise<void>
}

const prefixes = ['ledger-', 'pricebook', 'checkpoint', operatorStream] as const
const batchMax = 2_000
/** Events are collected for this long, because a small batch costs as much as a large one. */
const batchIntervalMs = 250
/** How often to check for a first webhook while there is none. */
const listenersRetryMs = 2_000

/**
 * Reads the event log and writes the messages for webhooks, in one process at a time. One transaction stores the position in the log, the
 * balances at that position and the messages. This is not a projection, because rebuilding a projection would send every notice again.
 *
 * If there are no webhooks, nothing is read. When the first webhook is created, the log is read from its beginning to calculate the balances.
 */
export const createWebhookFollower = (settings: Settings): HeldWork => {
  const { pool, logger, owner } = settings
  return createHeldWork(
    pool,
    {
      lease: { name: 'webhooks', owner },
      logger,
      what: 'webhooks: reading the event log',
      leaseRetryMs: 1_000,
      failurePauseMs: 500,
      idleMs: async () => ((await isHeard(pool)) ? null : listenersRetryMs),
    },
    ({ signal, works }) => followLog(settings, signal, works),
  )
}

const isHeard = async (pool: pg.Pool): Promise<boolean> =>
  (await pool.query('select from webhook_endpoints where disabled_at is null limit 1')).rows.length > 0

/** Reads the log until the signal aborts. Throws if reading fails. */
const followLog = async (settings: Settings, signal: AbortSignal, works: () => void): Promise<void> => {
  const { pool, eventLog, logger } = settings
  let place = await readPlace(pool)
  const after = place?.position ?? logStart
  try {
    for await (const item of eventLog.subscribe({ after, known: place, prefixes, batchMax, signal })) {
      works()
      if (item.kind !== 'events') continue
      place = await takeBatch(settings, place, item.events)
      if (item.events.length < batchMax)
        await sleep(batchIntervalMs, undefined, { signal }).catch(() => undefined)
    }
  } catch (error) {
    if (!(error instanceof LogRewritten)) throw error
    await forgetPlace(pool)
    // Messages that were already sent are recognized by their ids and not sent again.
    logger.warn({ err: error }, 'webhooks: the event log was replaced, so it is read from its beginning')
  }
}

const readPlace = async (pool: pg.Pool): Promise<LogPlace | undefined> => {
  const { rows } = await pool.query<{ position: string; event_id: string; digest: string }>(
    'select position, event_id, digest from webhook_progress',
  )
  const [row] = rows
  return row && { position: BigInt(row.position), eventId: row.event_id, digest: row.digest }
}

const forgetPlace = (pool: pg.Pool): Promise<void> =>
  inTransaction(pool, async (client) => {
    await client.query('delete from webhook_progress')
    await client.query('delete from webhook_balances')
  })

const takeBatch = async (
  { pool, logger, clock, put }: Settings,
  from: LogPlace | undefined,
  events: readonly RecordedEvent[],
): Promise<LogPlace | undefined> => {
  const last = events.at(-1)
  if (last === undefined) return from
  const to = placeOf(last)
  const webhookIds = await inTransaction(pool, async (client) => {
    await movePlace(client, from, to)
    const noticed = events.filter(({ type }) => noticedTypes.has(type))
    const balances = await readBalances(client, noticed)
    const notices = readEach(noticed, logger, (event) => noticeOf(event, balances))
    await writeBalances(client, balances)
    const deletions = events.filter(({ type }) => type === 'WebhookDeleted')
    await deleteAgain(
      client,
      readEach(deletions, logger, (event) =>
        event.type === 'WebhookDeleted' ? event.data.webhook_id : null,
      ),
    )
    return writeMessages(client, notices, clock.now())
  })
  if (webhookIds.length > 0) await put(webhookIds)
  return to
}

/** After a restore, the table can contain webhooks that were deleted after the backup. The event log is authoritative, so they are deleted again. */
const deleteAgain = async (client: pg.ClientBase, webhookIds: readonly string[]): Promise<void> => {
  if (webhookIds.length > 0)
    await client.query('delete from webhook_endpoints where webhook_id = any ($1)', [webhookIds])
}

/** Returns the results of `read`. Logs and skips events that cannot be read. */
const readEach = <Result>(
  events: readonly RecordedEvent[],
  logger: Logger,
  read: (event: DecodedEvent) => Result | null,
): Result[] =>
  events.flatMap((recorded) => {
    try {
      return read(decodeEvent(recorded)) ?? []
    } catch (error) {
      const { stream, revision } = recorded
      logger.error({ err: error, stream, revision }, 'webhooks: skipped an event that cannot be read')
      return []
    }
  })

const movePlace = async (client: pg.ClientBase, from: LogPlace | undefined, to: LogPlace): Promise<void> => {
  const values = [to.position.toString(), to.eventId, to.digest]
  const { rowCount } =
    from === undefined
      ? await client.query(
          'insert into webhook_progress (position, event_id, digest) values ($1, $2, $3) on conflict do nothing',
          values,
        )
      : await client.query(
          'update webhook_progress set position = $1, event_id = $2, digest = $3 where position = $4',
          [...values, from.position.toString()],
        )
  // The error rolls the batch back.
  if (rowCount !== 1) throw new Error('another process has already handled these events')
}

const readBalances = async (
  client: pg.ClientBase,
  events: readonly RecordedEvent[],
): Promise<Map<string, Balance>> => {
  const organizations = new Set(events.map(({ stream }) => organizationOfStream(stream)))
  organizations.delete(null)
  const balances = new Map<string, Balance>()
  if (organizations.size === 0) return balances
  const { rows } = await client.query<{
    organization_id: string
    balance_micro: string
    threshold_micro: string | null
  }>(
    'select organization_id, balance_micro, threshold_micro from webhook_balances where organization_id = any ($1)',
    [[...organizations]],
  )
  for (const { organization_id, balance_micro, threshold_micro } of rows)
    balances.set(organization_id, {
      micro: BigInt(balance_micro),
      threshold: threshold_micro === null ? null : BigInt(threshold_micro),
    })
  return balances
}

const writeBalances = async (client: pg.ClientBase, balances: Map<string, Balance>): Promise<void> => {
  if (balances.size === 0) return
  const all = [...balances]
  await client.query(
    `insert into webhook_balances (organization_id, balance_micro, threshold_micro)
     select * from unnest($1::text[], $2::numeric[], $3::numeric[])
     on conflict (organization_id) do update
        set balance_micro = excluded.balance_micro, threshold_micro = excluded.threshold_micro`,
    [
      all.map(([organizationId]) => organizationId),
      all.map(([, { micro }]) => micro.toString()),
      all.map(([, { threshold }]) => threshold?.toString() ?? null),
    ],
  )
}
