import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { copyEventLog } from '../../src/administration/event-log/copy-event-log.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { readCheckpoints, readHaltedStreams } from '../../src/projector/checkpoints.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { logger } from '../support/logger.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cliJson } from '../support/service.ts'

/** An event store shared with other software, as far as a double of the server's protocol can represent it. */

const prefix = 'enrichment-'

let double: EventStoreDouble
let databases: TestDatabase[] = []

beforeEach(async () => {
  double = await startEventStoreDouble({})
  databases = [await testDatabase(), await testDatabase()]
})

afterEach(async () => {
  await double.close()
  for (const database of databases) await database.drop()
})

const withFoundation = async <Value>(
  { database = 0, ...variables }: { database?: number; EVENT_LOG_PREFIX?: string },
  work: (foundation: Foundation) => Promise<Value>,
): Promise<Value> => {
  const config = parseConfig({
    DATABASE_URL: databases[database]?.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    EVENT_LOG_URL: double.url,
    ...variables,
  })
  const foundation = await openFoundation(config, { logger })
  try {
    return await work(foundation)
  } finally {
    await foundation.close()
  }
}

const organization = (foundation: Foundation): Promise<string> =>
  createOrganization(foundation, { name: 'Example', overdraftLimit: 0n, actor: 'system' }).then(
    async ({ organizationId }) => {
      await grant(foundation, {
        organizationId,
        amount: parseCredits('10'),
        priority: 100,
        expiresAt: null,
        reason: 'test',
        actor: 'system',
      })
      return organizationId
    },
  )

/** Writes other software's events to the server, both in streams named like ours and in streams with other names. */
const others = async (): Promise<void> => {
  const log = openEventStoreDb({ url: double.url, logger })
  for (const stream of ['ledger-general', 'orders', 'key-4711'])
    await log.append(stream, 'none', [
      { id: randomUUID(), type: 'BookingPosted', data: '{"sum":5}', metadata: '' },
    ])
  await log.close()
}

/** The errors of halted projections and halted streams. */
const halted = async ({ pool }: Pick<Foundation, 'pool'>): Promise<string[]> => [
  ...(await readCheckpoints(pool)).flatMap(({ state, error }) => (state === 'halted' ? [error ?? ''] : [])),
  ...(await readHaltedStreams(pool)).map(({ error }) => error),
]

test('without a prefix, a foreign event in a stream called ledger-… halts money projections, and the error names its origin and the remedy', async () => {
  await withFoundation({}, async (foundation) => {
    await organization(foundation)
    await others()
    await catchUp(foundation, logger)
    const haltErrors = await halted(foundation)
    expect(haltErrors.length).toBeGreaterThan(0)
    for (const error of haltErrors)
      expect(error).toMatch(
        /ledger-general, of type "BookingPosted", does not belong to this service.*EVENT_LOG_PREFIX/,
      )
  })
})

test('with a prefix, foreign events have no effect; earlier events can be copied without them', {
  skip: !exhaustive,
}, async () => {
  const organizationId = await withFoundation({}, organization)
  await others()
  const copied = await cliJson<{ events: number }>(['event-log', 'copy', '--to-prefix', prefix], {
    EVENT_LOG_FROM: double.url,
    EVENT_LOG_TO: double.url,
  })
  expect(copied).toMatchObject({ already: 0, left_out: 3 })
  // Copies again, as after an interruption. The server now also contains the first copy, which must not be copied.
  const [from, to] = [undefined, prefix].map((own) =>
    openEventStoreDb({ url: double.url, prefix: own, logger }),
  )
  if (from === undefined || to === undefined) throw new Error('no logs')
  expect(await copyEventLog({ from, to })).toMatchObject({
    events: copied.events,
    already: copied.events,
    leftOut: 3 + copied.events,
  })
  await Promise.all([from.close(), to.close()])
  await withFoundation({ database: 1, EVENT_LOG_PREFIX: prefix }, async (foundation) => {
    expect(foundation.eventLogName).toMatch(/#enrichment-$/)
    const other = await organization(foundation)
    await catchUp(foundation, logger)
    expect(await halted(foundation)).toEqual([])
    for (const id of [organizationId, other])
      expect((await verifyLedger(foundation.eventLog, id)).fault, id).toBeNull()
    const { rows } = await foundation.pool.query('select organization_id from accounts')
    expect(rows.map(({ organization_id }) => organization_id).sort()).toEqual([organizationId, other].sort())
  })
  await expect(withFoundation({ database: 1 }, async () => undefined)).rejects.toThrow(
    /built from .*#enrichment-/,
  )
})
