/**
 * Only a charge that was appended uses up an Idempotency-Key (decision 15). An outdated view of the ledger, a free answer or an
 * unreachable ledger does not. Rows in `idempotent_calls` can be lost: the ledger still shows what was paid under a key and for which
 * request, so a different request under that key always gets IDEMP_001.
 */
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { refund } from '../../src/administration/credits/refunds.ts'
import { requestIdsIn, reverseCalls } from '../../src/administration/credits/reverse-calls.ts'
import { parseCredits } from '../../src/billing/money.ts'
import {
  claimOf as claimFor,
  createIdempotency,
  type Idempotency,
  type IdempotencyClaim,
} from '../../src/call/idempotency.ts'
import { type EventLog, Unavailable } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { decideCommand } from '../../src/ledger/decide.ts'
import { createKeyedEvents } from '../../src/ledger/write/keyed-events.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { buy, chargesOf, forget, loseAnswers, rerate, unpaid } from '../spec/ledger-scene.ts'
import { expectCredits, expectErrorObject } from '../spec/wire.ts'
import { type Answer, houseForFile, type Partner, places, send, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'

const house = await houseForFile()
const otherLog = openPostgresEventLog({ url: house.foundation.url, logger })
const options = { eventLog: otherLog, snapshot: async () => null, logger, clock: Date }
const other = createLedger(options)
/** The ledger as in an earlier release, whose corrections could take more than the balance. */
const earlier = createLedger({
  ...options,
  decide: (account, ...rest) => decideCommand({ ...account, overdraftLimit: parseCredits('1000') }, ...rest),
})
afterAll(() => otherLog.close())

/** No location file contains this address, so the answer is free. */
const nowhere = '10.0.0.1'

const lookup = ({ apiKey }: Partner, key: string | null, ip: string = places.london): Promise<Answer> =>
  send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: {
      'x-api-key': apiKey,
      'content-type': 'application/json',
      ...(key === null ? {} : { 'idempotency-key': key }),
    },
    body: { ip },
  })

/** The claims of a process with this event log. */
const claimsOn = (eventLog: EventLog): Idempotency => {
  const { pool, secrets, epochKeys } = house.foundation
  return createIdempotency({
    pool,
    secrets,
    sealer: epochKeys.sealer('idempotent-answer'),
    eventLog,
    keyedEvents: createKeyedEvents(eventLog),
  })
}

const claimOf = ({ organizationId }: Partner, key: string, ip: string = places.london): IdempotencyClaim =>
  claimFor(
    house.foundation.secrets,
    { organizationId, key },
    { route: 'POST /v1/ip/lookup', body: JSON.stringify({ ip }) },
  )

const replayed = ({ headers }: Answer): string | null => headers.get('idempotent-replayed')

const lock = async (text: string): Promise<() => Promise<void>> => {
  const holder = new pg.Client({ connectionString: house.foundation.migrationUrl })
  // The database may be dropped before the lock is released.
  holder.on('error', () => undefined)
  await holder.connect()
  await holder.query('begin')
  await holder.query(text)
  return async () => {
    await holder.query('rollback')
    await holder.end()
  }
}

const bothWays = [
  ['without an Idempotency-Key', null],
  ['with one', 'a-key'],
] as const

describe.each(bothWays)('a call %s', (_, key) => {
  test('is paid with credits that another process granted since the last call', async () => {
    const partner = await house.partner({ credits: '0' })
    expectErrorObject(await lookup(partner, key), unpaid('1', '0'))
    await buy(house, partner, '10', other)
    const answer = await lookup(partner, key)
    expect({ status: answer.status, replayed: replayed(answer) }).toEqual({ status: 200, replayed: null })
    expectCredits(answer, '1', '9')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('is refused if another process used the credits since the last call', async () => {
    const partner = await house.partner({ credits: '2' })
    expect((await lookup(partner, null)).status).toBe(200)
    await rerate(house, partner, { amount: '-1', adjusts: null }, other)
    const answer = await lookup(partner, key)
    expectErrorObject(answer, unpaid('1', '0'))
    expectCredits(answer, '0', '0')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('that is free is also answered with a negative balance', async () => {
    const partner = await house.partner({ credits: '1' })
    await rerate(house, partner, { amount: '-3', adjusts: null }, earlier)
    const answer = await lookup(partner, key, nowhere)
    expect({ status: answer.status, code: answer.body.code }).toEqual({ status: 200, code: undefined })
    expectCredits(answer, '0', '-2')
    expect((await lookup(partner, null)).body.code).toBe('CREDIT_001')
  })
})

describe('calls that cost nothing', () => {
  test('a deleted free answer, requested five times simultaneously: each answer has its own facts, and the others get IDEMP_002', async () => {
    const partner = await house.partner({ credits: '5' })
    expect((await lookup(partner, 'at-once', nowhere)).status).toBe(200)
    await forget(house, partner)
    const before = (await house.eventsOf(partner.organizationId)).length
    // All calls find the claim before any of them finishes.
    const release = await lock('lock table idempotent_calls in access exclusive mode')
    const log = await house.blockLog()
    const calls = Array.from({ length: 5 }, () => lookup(partner, 'at-once', nowhere))
    await until('they wait for the claim', async () => (await waitingForClaims()) > 0)
    await release()
    await log.waiting()
    await log.release()
    const answers = await Promise.all(calls)
    const facts = (await house.eventsOf(partner.organizationId)).slice(before)
    expect(new Set(facts.map(({ type }) => type))).toEqual(new Set(['KeyUsed']))
    expect(facts.map(({ metadata }) => metadata.request_id).sort()).toEqual(
      answers.map(({ headers }) => headers.get('x-request-id')).sort(),
    )
    // Only one of the simultaneous calls is a first call.
    expect(answers.filter((one) => one.status === 200 && replayed(one) === null)).toHaveLength(1)
    for (const { status, body } of answers)
      if (status !== 200) expect({ status, code: body.code }).toEqual({ status: 409, code: 'IDEMP_002' })
  })
})

const waitingForClaims = async (): Promise<number> =>
  (
    await house.query(
      `select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%idempotent_calls%'
          and pid <> pg_backend_pid()`,
    )
  ).length

const callsInProgress = async (): Promise<number> => {
  const metrics = await (await fetch(`${house.metricsUrl}/metrics`)).text()
  return Number(/^\S*calls_in_progress (\d+)$/m.exec(metrics)?.[1])
}

test('a call that would wait for the database longer than a second is refused with 503, and its key can be used again', async () => {
  const partner = await house.partner({ credits: '10' })
  const release = await lock('lock table idempotent_calls in access exclusive mode')
  const first: Promise<Answer>[] = []
  // Two calls may wait in the database at the same time.
  for (let n = 1; n <= 2; n++) {
    first.push(lookup(partner, `waits-in-the-database-${n}`))
    await until('it waits for the claim', async () => (await waitingForClaims()) === n)
  }
  const late = lookup(partner, 'waits-here')
  // On a slow machine, a call can be refused after three seconds before this test sees all calls in progress.
  const waiting = new Set([...first, late])
  for (const call of waiting) void call.then(() => waiting.delete(call))
  await until(
    'the third call is in progress',
    async () => !waiting.has(late) || (await callsInProgress()) === waiting.size,
  )
  const waitingMs = performance.now()
  await until('a second has passed', async () => performance.now() - waitingMs > 1_200)
  await release()
  const { status, body } = await late
  expect({ status, code: body.code }).toEqual({ status: 503, code: 'SYS_002' })
  // A call waits at most three seconds for its claim, and on a slow machine this test takes longer.
  for (const { status } of await Promise.all(first)) expect([200, 503]).toContain(status)
  for (const key of ['waits-in-the-database-1', 'waits-in-the-database-2', 'waits-here'])
    await until(`the key ${key} gives an answer`, async () => (await lookup(partner, key)).status === 200)
  expect(await chargesOf(house, partner)).toHaveLength(3)
})

describe('a ledger that cannot be read', () => {
  /** The claims of a process whose event log `away` can make unreachable. */
  const claims = (): { idempotency: Idempotency; away(is: boolean): void } => {
    const { eventLog } = house.foundation
    let gone = true
    const idempotency = claimsOn({
      ...eventLog,
      read: (stream, options) =>
        gone ? Promise.reject(new Unavailable('away')) : eventLog.read(stream, options),
    })
    return {
      idempotency,
      away: (is) => {
        gone = is
      },
    }
  }

  test('leaves no claim: the next call with the key is a first call', async () => {
    const claim = claimOf(await house.partner(), 'away')
    const { idempotency, away } = claims()
    for (let n = 0; n < 2; n++) await expect(idempotency.claim(claim)).rejects.toBeInstanceOf(Unavailable)
    away(false)
    expect(await idempotency.claim(claim)).toMatchObject({ kind: 'first' })
    expect(await idempotency.claim(claim)).toEqual({ kind: 'in_flight' })
  })

  test('leaves no claim that was taken over from a process that died', async () => {
    const partner = await house.partner()
    const claim = claimOf(partner, 'taken-over')
    const { idempotency, away } = claims()
    away(false)
    await idempotency.claim(claim)
    await loseAnswers(house, partner)
    away(true)
    await expect(idempotency.claim(claim)).rejects.toBeInstanceOf(Unavailable)
    away(false)
    expect(await idempotency.claim(claim)).toMatchObject({ kind: 'first' })
  })

  test("does not give a charged key to another request: that one is a mismatch, and the key's own request is answered", async () => {
    const partner = await house.partner({ credits: '10' })
    expectCredits(await lookup(partner, 'charged'), '1', '9')
    await loseAnswers(house, partner)
    const { idempotency, away } = claims()
    await expect(idempotency.claim(claimOf(partner, 'charged'))).rejects.toBeInstanceOf(Unavailable)
    away(false)
    expect(await idempotency.claim(claimOf(partner, 'charged', places.munich))).toEqual({ kind: 'mismatch' })
    expect(await idempotency.claim(claimOf(partner, 'charged'))).toMatchObject({ kind: 'charged' })
  })
})

describe('if rows are lost', () => {
  const key = 'an-old-key'

  const post = ({ apiKey }: Partner, path: string, body: unknown): Promise<Answer> =>
    send(`${house.apiUrl}${path}`, {
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json', 'idempotency-key': key },
      body,
    })
  const lookup = (partner: Partner, ip: string) => post(partner, '/v1/ip/lookup', { ip })

  const loseRows = ({ organizationId }: Partner) =>
    house.query('delete from idempotent_calls where organization_id = $1', [organizationId])

  const projected = async ({ organizationId }: Partner): Promise<boolean> =>
    (
      await house.query(
        'select 1 from ledger_lines where organization_id = $1 and charge_id is not null and idempotent',
        [organizationId],
      )
    ).length > 0

  const mismatch = { status: 422, error: 'validation_error', code: 'IDEMP_001', details: {} }

  const expectOwnOnly = async (partner: Partner): Promise<void> => {
    for (let n = 0; n < 2; n++) {
      await loseRows(partner)
      for (let again = 0; again < 2; again++) {
        const other = await lookup(partner, places.munich)
        expectErrorObject(other, mismatch)
        expectCredits(other, '0', '9')
      }
      expectErrorObject(await post(partner, '/v1/email/validate', { email: 'a@example.com' }), mismatch)
      const own = await lookup(partner, places.london)
      expect({ status: own.status, replayed: own.headers.get('idempotent-replayed') }).toEqual({
        status: 200,
        replayed: 'true',
      })
      expectCredits(own, '0', '9')
      expectErrorObject(await lookup(partner, places.munich), mismatch)
    }
    expect(await chargesOf(house, partner)).toHaveLength(1)
    expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
  }

  const paid = async (): Promise<Partner> => {
    const partner = await house.partner({ permissions: ['ip_lookup', 'email_validation'], credits: '10' })
    expectCredits(await lookup(partner, places.london), '1', '9')
    return partner
  }

  describe('after its row is lost, a paid key answers its own request free, and no other request', () => {
    test('before the charge is in a projection', async () => {
      const release = await lock('lock table ledger_lines_v2 in share row exclusive mode')
      try {
        const partner = await paid()
        await expectOwnOnly(partner)
        expect(await projected(partner)).toBe(false)
      } finally {
        await release()
      }
    })

    test('also if a process died before it sent IDEMP_001 to another request', async () => {
      const partner = await paid()
      const { organizationId } = partner
      const rowOf = () =>
        house.query('select body_hash from idempotent_calls where organization_id = $1', [organizationId])
      const own = await rowOf()
      const another = claimOf(partner, key, places.munich).fingerprint
      // Turns the row into a claim that is more than a minute old, made by a process that has ended.
      const leave = () =>
        house.query(
          `update idempotent_calls set body_hash = $2, status = null, answer = null, answered_at = null,
                  claimed_at = now() - interval '2 min' where organization_id = $1`,
          [organizationId, another],
        )
      await leave()
      expectCredits(await lookup(partner, places.london), '0', '9')
      expect(await rowOf()).toEqual(own)
      await leave()
      expectErrorObject(await lookup(partner, places.munich), mismatch)
      expectCredits(await lookup(partner, places.london), '0', '9')
      expect(await rowOf()).toEqual(own)
      expect(await chargesOf(house, partner)).toHaveLength(1)
    })
  })

  test('if a row is missing from the statement, nothing is charged again, because the claim contains the place of the charge', async () => {
    const partner = await paid()
    const { organizationId } = partner
    await forget(house, partner)
    // This call is the statement's last line. If the charge came after the statement's end, it would be found in the log.
    await send(`${house.apiUrl}/v1/ip/lookup`, {
      headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json' },
      body: { ip: places.private },
    })
    const end = (await house.eventsOf(organizationId)).length - 1
    const linesTo = () =>
      house.query('select 1 from ledger_lines where organization_id = $1 and revision = $2', [
        organizationId,
        end,
      ])
    await until('all is projected', async () => (await linesTo()).length > 0)
    await house.query('delete from ledger_lines_v2 where ledger = ledger_key($1) and idempotent', [
      organizationId,
    ])
    expect(await claimsOn(house.foundation.eventLog).claim(claimOf(partner, key))).toMatchObject({
      kind: 'charged',
    })
  })

  test('a process that stopped for minutes does not give its answer to a later request with its key, and does not end that claim', async () => {
    const partner = await house.partner()
    const idempotency = claimsOn(house.foundation.eventLog)
    const [own, later] = [claimOf(partner, key), claimOf(partner, key, places.munich)]
    expect(await idempotency.claim(own)).toMatchObject({ kind: 'first' })
    // Another process has taken the stale claim over, and its call failed.
    await loseRows(partner)
    expect(await idempotency.claim(later)).toMatchObject({ kind: 'first' })
    await idempotency.finish(own, { status: 200, body: '{}', paidRevision: null })
    await idempotency.release(own)
    await idempotency.handBack(own)
    expect(await idempotency.claim(later)).toEqual({ kind: 'in_flight' })
  })

  test.each([
    ['another revision', 1],
    ['no place', null],
  ] as const)('a row that names %s is ignored, and nothing is charged again', async (_, revision) => {
    const partner = await paid()
    await forget(house, partner)
    await house.query('update idempotent_calls set paid_revision = $2 where organization_id = $1', [
      partner.organizationId,
      revision,
    ])
    const again = await lookup(partner, places.london)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expectCredits(again, '0', '9')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

describe('a call that was refunded', () => {
  const typesOf = async ({ organizationId }: Partner): Promise<string[]> =>
    (await house.eventsOf(organizationId)).map(({ type }) => type)

  const remaining = ({ headers }: Answer): string | null => headers.get('credits-remaining')

  test.each([
    { refunded: 'a part', amount: parseCredits('0.25'), left: '9.25' },
    { refunded: 'all', amount: undefined, left: '10' },
  ])(
    '$refunded of it was refunded: a repetition is answered and charged nothing, also after a day',
    async ({ amount, left }) => {
      const partner = await house.partner({ credits: '10' })
      const requestId = String((await lookup(partner, 'refunded')).body.request_id)
      await house.projected()
      await refund(house.foundation, {
        requestId,
        amount,
        reason: 'wrong country',
        actor: 'cli:test',
        dryRun: false,
      })
      for (let n = 0; n < 3; n++) {
        const again = await lookup(partner, 'refunded')
        const replayed = again.headers.get('idempotent-replayed')
        expect({ status: again.status, remaining: remaining(again), replayed }).toEqual({
          status: 200,
          remaining: left,
          replayed: 'true',
        })
        await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
      }
      expect((await typesOf(partner)).filter((type) => type === 'CreditCharged')).toHaveLength(1)
    },
  )

  test('of the calls that a stopped process listed, the charged ones are refunded once', async () => {
    const partner = await house.partner({ credits: '10' })
    const charged = await house.lookup(partner, { ip: places.london })
    const free = await house.lookup(partner, { ip: places.private })
    await house.projected()
    const notRecorded = '01M7YKBQZN92PN3ABTVNQE6E12'
    const requestIds = [charged, free].map(({ body }) => String(body.request_id)).concat(notRecorded)
    const reverse = (dryRun: boolean) =>
      reverseCalls(house.foundation, { requestIds, dryRun, actor: 'cli:test', onProgress: () => undefined })
    const expected = { total: parseCredits('1'), reversed: [true, false, false], pending: 1 }
    const seen = ({ calls, total, pending }: Awaited<ReturnType<typeof reverse>>) => ({
      total,
      reversed: calls.map(({ reversed }) => reversed),
      pending,
    })
    for (const dryRun of [true, false]) {
      const done = await reverse(dryRun)
      expect(seen(done)).toEqual(expected)
      expect(done.calls[2]).toMatchObject({ why: expect.stringContaining('not recorded') })
      expect((await typesOf(partner)).includes('CreditAdjusted')).toBe(!dryRun)
    }
    const again = await reverse(false)
    expect(seen(again)).toEqual({ total: 0n, reversed: [false, false, false], pending: 1 })
    expect(remaining(await lookup(partner, 'after'))).toBe('9')
  })

  test('a file of request ids reports the number of an invalid line, and must be neither empty nor too long', () => {
    const id = '01M7YKBQZN92PN3ABTVNQE6E12'
    expect(requestIdsIn(`${id}\r\n\n ${id}\n`)).toEqual([id])
    expect(() => requestIdsIn(`${id}\nabc`)).toThrow('line 2: "abc" is not a request id')
    expect(() => requestIdsIn('\n')).toThrow('0 request ids')
  })
})
