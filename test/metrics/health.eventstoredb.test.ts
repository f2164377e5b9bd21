/** Readiness of projections on EventStoreDB, as far as a double of the server's protocol can show it. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import type { ProjectionLag } from '../../src/administration/projections/projections.ts'
import { parseConfig } from '../../src/config.ts'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { createHealth, type Health } from '../../src/metrics/health.ts'
import { createProjector } from '../../src/projector/run.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import { newEvents } from '../contract/event-log.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { logger } from '../support/logger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { eventually } from '../support/service.ts'

let double: EventStoreDouble
let database: TestDatabase
let pool: pg.Pool
let eventLog: EventLog
let others: EventLog

beforeEach(async () => {
  double = await startEventStoreDouble({ systemEventEvery: 10 })
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url })
  eventLog = openEventStoreDb({ url: double.url, prefix: 'enrichment-', logger })
  others = openEventStoreDb({ url: double.url, logger })
  const client = await pool.connect()
  await prepareProjections(client, projections)
  client.release()
})

afterEach(async () => {
  await eventLog.close()
  await others.close()
  await double.close()
  await pool.end()
  await database.drop()
})

const healthNow = (): Health =>
  createHealth({
    config: parseConfig({}),
    eventLog,
    pool,
    ledger: { failure: () => null },
    diskSpace: { seen: () => null },
  })

test('the lag is the age of the oldest event without rows; events that others write to the server do not count', async () => {
  const startedAt = performance.now()
  await eventLog.append('test-1', 'none', newEvents(1))
  await sleep(450)
  await eventLog.append('test-1', 0, newEvents(1))
  const health = healthNow()
  // On a busy machine the first check may take longer than its timeout.
  const lag = await eventually(
    async () => (await health.readiness({ showsRows: true })).checks.projections?.lag_seconds,
  )
  expect(lag).toBeGreaterThanOrEqual(0.4)
  expect(lag).toBeLessThan((performance.now() - startedAt) / 1_000 + 0.01)

  const projector = createProjector({
    url: database.url,
    eventLog,
    projections,
    logger,
    owner: 'test',
    seal: { of: () => '', fits: () => false },
  })
  void projector.run()
  try {
    // If a check takes longer than its timeout, the answer is null, and the lag is not known.
    const lagging = async (): Promise<readonly ProjectionLag[]> => {
      const lags = await eventually(async () => (await healthNow().projectionLags()) ?? undefined)
      expect(lags).toHaveLength(projections.length)
      return lags.filter(({ behind, seconds }) => behind > 0n || seconds > 0)
    }
    await eventually(async () => ((await lagging()).length === 0 ? true : undefined))
    for (let n = 0; n < 20; n++) await others.append(`orders-${n}`, 'none', newEvents(50))
    expect(await lagging()).toEqual([])
  } finally {
    await projector.stop()
  }
})
