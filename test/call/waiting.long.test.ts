/** No caller waits longer than 12 seconds for a 503, no matter which part of the service hangs. */
import pg from 'pg'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { type LedgerCommand, LedgerOutcomeUnknown } from '../../src/ledger/command.ts'
import { createKeyedEvents } from '../../src/ledger/write/keyed-events.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import type { App } from '../../src/start/app.ts'
import { chargesOf } from '../spec/ledger-scene.ts'
import { expectCredits } from '../spec/wire.ts'
import { type Answer, houseForFile, type Partner, places, send, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

/** A second process, which uses the house's database and has not loaded any account. */
const releases: (() => Promise<void>)[] = []

const house = await houseForFile()
const { foundation } = house
const keyedEvents = createKeyedEvents(foundation.eventLog)
const ledger = createLedger({
  eventLog: keyedEvents.eventLog,
  snapshot: snapshotFrom(foundation.pool, foundation.secrets.rowSeal),
  logger,
  clock: Date,
})
const fresh = await house.another({ foundation: { ledger, keyedEvents } })
afterEach(async () => {
  for (const release of releases.splice(0)) await release()
})
afterAll(() => fresh.close())

/** Makes queries of these tables wait, as if the database had stopped, until the test ends or the returned function is called. */
const silence = async (...tables: string[]): Promise<() => Promise<void>> => {
  const holder = new pg.Client({ connectionString: house.foundation.migrationUrl })
  holder.on('error', () => undefined)
  await holder.connect()
  await holder.query('begin')
  await holder.query(`lock table ${tables.join(', ')} in access exclusive mode`)
  let ended: Promise<void> | undefined
  const release = () => (ended ??= holder.query('rollback').then(() => holder.end()))
  releases.push(release)
  return release
}

type Timed = { readonly answer: Answer; readonly seconds: number }

const lookup = async (
  { apiKey }: Partner,
  key: string | null,
  { apiUrl }: Pick<App, 'apiUrl'> = house,
): Promise<Timed> => {
  const startedMs = performance.now()
  const answer = await send(`${apiUrl}/v1/ip/lookup`, {
    headers: {
      'x-api-key': apiKey,
      'content-type': 'application/json',
      ...(key === null ? {} : { 'idempotency-key': key }),
    },
    body: { ip: places.london },
  })
  return { answer, seconds: (performance.now() - startedMs) / 1_000 }
}

const expectInTime = ({ answer, seconds }: Timed, codes = ['SYS_002', 'SYS_003']): void => {
  expect(codes).toContain(answer.body.code)
  expect(answer.text).not.toContain('London')
  expect(seconds).toBeLessThan(12)
}

describe('a call under an Idempotency-Key', () => {
  test('whose claim is not answered gets its error in time, and leaves no claim when the answer arrives later', async () => {
    const partner = await house.partner({ credits: '10' })
    await lookup(partner, 'before')
    const release = await silence('idempotent_calls')
    expectInTime(await lookup(partner, 'claimed'), ['SYS_002'])
    await release()
    await until('the key is free again', async () => (await lookup(partner, 'claimed')).answer.status !== 409)
    const { answer } = await lookup(partner, 'claimed')
    expect(answer.status).toBe(200)
    expectCredits(answer, '0', '8')
    expect(await chargesOf(house, partner)).toHaveLength(2)
  })

  test('whose answer cannot be stored gets its answer in time', async () => {
    const partner = await house.partner({ credits: '10' })
    const log = await house.blockLog()
    const call = lookup(partner, 'kept')
    await log.waiting()
    const release = await silence('idempotent_calls')
    await log.release()
    const { answer, seconds } = await call
    expectCredits(answer, '1', '9')
    expect(seconds).toBeLessThan(12)
    await release()
    // Either the answer is stored later, or the key becomes free again.
    await until('the key is free again', async () => (await lookup(partner, 'kept')).answer.status !== 409)
    expectCredits((await lookup(partner, 'kept')).answer, '0', '9')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

test('the ledger does not wait again for the time that a call has already waited', async () => {
  const { organizationId } = await house.partner({ credits: '10' })
  const { eventLog, pool, secrets } = house.foundation
  const ledger = createLedger({
    eventLog: { ...eventLog, append: () => new Promise(() => undefined) },
    snapshot: snapshotFrom(pool, secrets.rowSeal),
    logger,
    clock: Date,
  })
  const command: LedgerCommand = {
    key: 'patience',
    atMs: Date.now(),
    actor: 'system',
    kind: 'count_rate_limited',
    exceeded: { key_id: 'k'.repeat(16), policy: 'minute', window: new Date().toISOString(), count: 1 },
  }
  const submitted = ledger.submit(organizationId, { ...command, waitMaxMs: 200 })
  await expect(takesAtMost(3_000, submitted)).rejects.toBeInstanceOf(LedgerOutcomeUnknown)
})

test('while the event log cannot be read, every caller is refused in time, also for an organization without earlier calls', async () => {
  const partner = await house.partner({ credits: '10' })
  await lookup(partner, null)
  const later = await house.partner({ credits: '10' })
  // Hosts receive keys in order, so they have the first key, too.
  await until(
    'both hosts know the keys',
    async () => (await lookup(later, null, fresh)).answer.status === 200,
  )
  await silence('log_stream_marks', 'log_segments')
  const waiting = [
    lookup(partner, null),
    lookup(partner, 'known'),
    lookup(partner, 'unknown', fresh),
    lookup(partner, null, fresh),
  ]
  for (const call of waiting) expectInTime(await call)
})
