/**
 * A call with a low balance sends the ledger two commands under one key. The first checks whether the call must be refused, and
 * must leave nothing behind. The second must record the call's facts and its charge.
 */
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { atMs, call, command, openLedger, org } from '../support/ledger-commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

let log: MemoryEventLog
let ledger: Ledger

beforeEach(async () => {
  log = createMemoryEventLog({ now: () => atMs })
  ledger = createLedger({
    eventLog: log.client('process'),
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: { now: () => atMs },
  })
  await openLedger(ledger, '100')
})
afterEach(async () => {
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
})

const charged = ['KeyUsed', 'CreditCharged']

test.each([
  ['a request id', {}],
  ['an Idempotency-Key', { requestId: 'request', absentUpTo: 1 }],
] as const)(
  'a command without events under %s does not replace the next command under the same key',
  async (_, more) => {
    const others = [ledger.submit(org, call('before-1')), ledger.submit(org, call('before-2'))]
    const nothing = ledger.submit(org, command('twice', { kind: 'expire', grantId: 'none' }, more))
    const atOnce = ledger.submit(org, call('twice', more))
    others.push(ledger.submit(org, call('after')))
    expect((await nothing).events).toEqual([])
    const made = await atOnce
    expect(made.events.map(({ type }) => type)).toEqual(charged)
    expect(made.repeated).toBe(false)
    await Promise.all(others)
    if (!('absentUpTo' in more)) return
    const again = await ledger.submit(org, call('twice', more))
    expect(again.repeated).toBe(true)
    expect(again.events).toEqual(made.events)
  },
)

test('a call that follows a command without events immediately, as a real caller sends it, is charged', async () => {
  const others = [ledger.submit(org, call('before-1')), ledger.submit(org, call('before-2'))]
  const made = ledger
    .submit(org, command('twice', { kind: 'expire', grantId: 'none' }, { requestId: 'request' }))
    .then(() => ledger.submit(org, call('twice', { requestId: 'request' })))
  others.push(ledger.submit(org, call('after')))
  expect((await made).events.map(({ type }) => type)).toEqual(charged)
  await Promise.all(others)
})
