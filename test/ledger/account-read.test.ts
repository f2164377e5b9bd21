/** The number of events that a process reads for an account to which it appends nothing itself. */
import { pino } from 'pino'
import { expect, test } from 'vitest'
import type { Instruction } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const organizationId = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const exceeded = {
  key_id: 'K9abcdefghijklmn',
  policy: 'minute',
  window: '2026-03-01T11:59:00.000Z',
  count: 1,
} as const
const atMs = Date.parse('2026-03-01T12:00:00.000Z')

test('events of another process are read once, however often the account is read', async () => {
  const log = createMemoryEventLog()
  const from: (number | bigint | undefined)[] = []
  const ledgerOf = (name: string, onRead?: (stream: string, options: { from?: number }) => undefined) =>
    createLedger({
      eventLog: log.client(name, onRead === undefined ? {} : { onRead }),
      snapshot: async () => null,
      logger: pino({ level: 'silent' }),
      clock: { now: () => atMs },
    })
  const writing = ledgerOf('writing')
  const asking = ledgerOf('asking', (_, options) => {
    from.push(options.from)
    return undefined
  })
  const write = (key: string, instruction: Instruction) =>
    writing.submit(organizationId, { key, atMs, actor: 'system', ...instruction })
  await write('register', { kind: 'register', name: 'Example', overdraftLimit: 0n })
  expect((await asking.lastSeen(organizationId)).revision).toBe(0)
  for (let n = 0; n < 50; n++) await write(`call-${n}`, { kind: 'count_rate_limited', exceeded })
  from.length = 0
  for (let n = 0; n < 3; n++) expect((await asking.account(organizationId)).revision).toBe(50)
  // Each read starts with the account's last event, to check that it is still in the log.
  expect(from).toEqual([0, 50, 50])
  expect((await asking.lastSeen(organizationId)).revision).toBe(50)
})

test.each([{ fresh: false }, { fresh: true }])(
  'when any of its sources is down, a caller who asks for figures is asked to retry: %o',
  async ({ fresh }) => {
    let broken = new Error('Connection terminated unexpectedly')
    const ledger = createLedger({
      eventLog: createMemoryEventLog().client('asking', {
        onRead: () => {
          throw broken
        },
      }),
      snapshot: () => Promise.reject(broken),
      logger: pino({ level: 'silent' }),
      clock: { now: () => atMs },
    })
    for (const message of ['Connection terminated unexpectedly', 'read ECONNRESET']) {
      broken = new Error(message)
      await expect(ledger.figures(organizationId, { atMs, fresh })).rejects.toMatchObject({
        name: 'LedgerUnavailable',
        cause: { message },
      })
    }
  },
)
