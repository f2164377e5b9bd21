import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { createChains } from '../../src/event-log/verify/chains.ts'
import { createLedger } from '../../src/ledger/write/commit.ts'
import { atMs, command, grantOf, openLedger, org, stream } from '../support/ledger-commands.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

test('after an event without a digest, a process continues the chain that verification expects', async () => {
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
  const metadata = '{"schema_version":1,"actor":"other","effective_at":"2026-01-01T00:00:00.000Z"}'
  await other.append(stream, before.length - 1, [
    { id: randomUUID(), type: 'LedgerFenced', data: '{}', metadata },
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
})
