/**
 * A charge whose caller was refused, and a retry with the same Idempotency-Key that another process answers: the charge
 * is given back or its answer is delivered, never both.
 */
import { pino } from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { refund } from '../../src/administration/refunds.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { reversalCommand } from '../../src/ledger/abandoned.ts'
import { type Committed, createLedger, type Ledger } from '../../src/ledger/commit.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import { type Answer, type House, openHouse, type Partner, places, send, until } from '../support/house.ts'

const logger = pino({ level: 'silent' })
let house: House
/** Of the process that refused the call. */
let otherLog: EventLog

beforeAll(async () => {
  house = await openHouse()
  otherLog = openPostgresEventLog({ url: house.foundation.url, logger })
})
afterAll(async () => {
  await otherLog?.close()
  await house?.close()
})

const lookup = (partner: Partner, key: string): Promise<Answer> =>
  send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json', 'idempotency-key': key },
    body: { ip: places.london },
  })

const typesOf = async ({ organizationId }: Partner): Promise<string[]> =>
  (await house.eventsOf(organizationId)).map(({ type }) => type)

/** What stands after an append that arrived too late: a charge, and nobody who was answered. */
const charged = async (key: string): Promise<{ partner: Partner; reverse: () => Promise<Committed> }> => {
  const partner = await house.partner({ credits: '10' })
  await lookup(partner, key)
  const events = await house.eventsOf(partner.organizationId)
  const [used, charge] = events.slice(-2)
  await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
  const refuser: Ledger = createLedger({
    eventLog: otherLog,
    snapshot: async () => null,
    logger,
    clock: Date,
  })
  const reversal = {
    chargeId: String(charge?.data.charge_id),
    amount: parseCredits('1'),
    firstEventId: used?.id ?? '',
    absentUpTo: (used?.revision ?? 0) - 1,
  }
  return {
    partner,
    reverse: () => refuser.submit(partner.organizationId, reversalCommand(reversal, Date.now())),
  }
}

const remaining = ({ headers }: Answer): string | null => headers.get('credits-remaining')

test('given back while the retry is answered: the retry is SYS_002, and the next one is a first call, charged', async () => {
  const { partner, reverse } = await charged('raced')
  const log = await house.blockLog()
  const reversing = reverse()
  await log.waiting()
  const retried = lookup(partner, 'raced')
  // The retry has looked into the ledger, which does not hold the reversal yet, and waits behind it.
  await until('both appends wait', async () => (await appendsWaiting()) === 2)
  await log.release()
  expect((await reversing).events.map(({ type }) => type)).toEqual(['CreditAdjusted'])
  const answer = await retried
  expect({ status: answer.status, code: answer.body.code }).toEqual({ status: 503, code: 'SYS_002' })
  expect(answer.text).not.toContain('London')

  const again = await lookup(partner, 'raced')
  expect({ status: again.status, remaining: remaining(again) }).toEqual({ status: 200, remaining: '9' })
  const types = await typesOf(partner)
  expect(types.filter((type) => type === 'CreditCharged')).toHaveLength(2)
  expect(types.filter((type) => type === 'CreditAdjusted')).toHaveLength(1)
  expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
})

test('answered before it is given back: the charge stays, once, however often the answer is lost again', async () => {
  const { partner, reverse } = await charged('owed')
  for (let n = 0; n < 3; n++) {
    const answer = await lookup(partner, 'owed')
    expect({ status: answer.status, remaining: remaining(answer) }).toEqual({ status: 200, remaining: '9' })
    expect((await reverse()).events.map(({ type }) => type)).toEqual(['KeyUsed'])
    await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
  }
  expect((await typesOf(partner)).filter((type) => type === 'CreditAdjusted')).toEqual([])
  expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
})

test('a part of it was refunded: the rest stands, and a repetition a day later is answered and charged nothing', async () => {
  const partner = await house.partner({ credits: '10' })
  const requestId = String((await lookup(partner, 'refunded-in-part')).body.request_id)
  await house.projected()
  const asked = { requestId, reason: 'wrong country', actor: 'cli:test', dryRun: false }
  await refund(house.foundation, { ...asked, amount: parseCredits('0.25') })
  await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
  for (let n = 0; n < 2; n++) {
    const again = await lookup(partner, 'refunded-in-part')
    expect({ status: again.status, remaining: remaining(again) }).toEqual({ status: 200, remaining: '9.25' })
    await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
  }
  expect((await typesOf(partner)).filter((type) => type === 'CreditCharged')).toHaveLength(1)
  // Nothing of it is left after the rest was refunded as well.
  await refund(house.foundation, asked)
  expect((await typesOf(partner)).filter((type) => type === 'CreditAdjusted')).toHaveLength(2)
})

test('all of it was refunded: the kept answer is given again, free, and without one the key makes a first call', async () => {
  const partner = await house.partner({ credits: '10' })
  const requestId = String((await lookup(partner, 'refunded')).body.request_id)
  await house.projected()
  await refund(house.foundation, { requestId, reason: 'wrong country', actor: 'cli:test', dryRun: false })
  const kept = await lookup(partner, 'refunded')
  expect({
    ...{ status: kept.status, remaining: remaining(kept) },
    replayed: kept.headers.get('idempotent-replayed'),
  }).toEqual({ status: 200, remaining: '10', replayed: 'true' })
  await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
  const first = await lookup(partner, 'refunded')
  expect({
    ...{ status: first.status, remaining: remaining(first) },
    replayed: first.headers.get('idempotent-replayed'),
  }).toEqual({ status: 200, remaining: '9', replayed: null })
})

/** Appends of this house and of the other process that wait for the log. */
const appendsWaiting = async (): Promise<number> =>
  (
    await house.query(
      `select 1 from pg_stat_activity
        where datname = current_database() and application_name = 'event-log-append' and wait_event_type = 'Lock'`,
    )
  ).length
