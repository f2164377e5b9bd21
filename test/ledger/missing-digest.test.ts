import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import { parseConfig } from '../../src/config.ts'
import { createChains } from '../../src/event-log/verify/chains.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { readHaltedStreams } from '../../src/projector/checkpoints.ts'
import { atMs, command, grantOf, openLedger, org, stream } from '../support/ledger-commands.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { testDatabase } from '../support/postgres.ts'

/** Metadata of events that another program or a person wrote into a ledger. None of them ends with a digest. */
const written = '"schema_version":1,"actor":"other","effective_at":"2026-01-01T00:00:00.000Z"'
const foreignMetadata = [
  ['without a digest', `{${written}}`],
  ['with a digest before other members', `{"digest":"${'x'.repeat(43)}",${written}}`],
  ['with a digest in other spacing', `{${written}, "digest": "${'x'.repeat(43)}" }`],
  ['with a digest that is not text', `{${written},"digest":5}`],
] as const

test.each(foreignMetadata)(
  'after an event %s, a process continues the chain that verification expects',
  async (_, metadata) => {
    const clock = { now: () => atMs }
    const log = createMemoryEventLog(clock)
    const processOf = (name: string) =>
      createLedger({
        eventLog: log.client(name),
        snapshot: async () => null,
        logger: pino({ level: 'silent' }),
        clock,
      })
    await openLedger(processOf('opener'), '1')
    const other = log.client('other')
    const before = await other.read(stream, { from: 0, max: 100 })
    await other.append(stream, before.length - 1, [
      { id: randomUUID(), type: 'LedgerFenced', data: '{"request_ids":[]}', metadata },
    ])

    const ledger = processOf('a')
    await ledger.submit(org, command('first', grantOf('1'), { actor: 'cli' }))
    await ledger.submit(org, command('second', grantOf('1'), { actor: 'cli' }))

    const events = await other.read(stream, { from: 0, max: 100 })
    expect(events.length).toBeGreaterThanOrEqual(before.length + 3)
    const chains = createChains()
    expect(events.map((event) => chains.check(event)).filter((fault) => fault !== null)).toEqual([
      'has no digest',
    ])
    const acknowledged = createChains(({ revision }) => revision === before.length)
    expect(events.map((event) => acknowledged.check(event)).filter((fault) => fault !== null)).toEqual([])
  },
)

test.each(foreignMetadata)(
  'after an event %s, the rows and a process that continues from them have the same account',
  async (_, metadata) => {
    const database = await testDatabase()
    const logger = pino({ level: 'silent' })
    const config = parseConfig({
      DATABASE_URL: database.url,
      SECRET_KEY: 'a secret of the test, long enough to be one',
    })
    const first = await openFoundation(config, { logger })
    await openLedger(first.ledger, '1')
    const data = { grant_id: randomUUID(), amount: '7', priority: 100, expires_at: null, reason: 'by hand' }
    const grant = JSON.stringify({ ...data, overdraft_repaid: '0', reference: null })
    await first.eventLog.append(stream, 1, [
      { id: randomUUID(), type: 'CreditGranted', data: grant, metadata },
    ])
    await catchUp(first, logger)
    expect(await readHaltedStreams(first.pool)).toEqual([])
    await first.close()

    const second = await openFoundation(config, { logger })
    await second.ledger.submit(org, command('later', grantOf('1'), { actor: 'cli' }))
    await catchUp(second, logger)
    const { rows } = await second.pool.query('select revision, granted_micro, digest from accounts')
    const { revision, digest } = await second.ledger.account(org)
    expect(revision).toBe(3)
    expect(rows).toEqual([{ revision: '3', granted_micro: '9000000', digest }])
    await second.close()
    await database.drop()
  },
)
