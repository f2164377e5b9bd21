/**
 * An append is held in the network, so its caller does not know the outcome. The append arrives while another process repeats the
 * call under the same Idempotency-Key. In either order, an answer that is sent is paid for exactly once.
 */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { type EventLog, UnknownOutcome } from '../../src/event-log/port.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import type { App } from '../../src/start/app.ts'
import { type Answer, openHouse, type Partner, places, send, until } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { profileUpstream } from '../support/profile-upstream.ts'

const lid = 'zorvina-quillfeather'
/** The process whose append is held. It shares the house's database. */
let partner: Partner

type HeldLog = {
  readonly eventLog: EventLog
  /** From now on, appends to ledgers have an unknown outcome. */
  hold(): void
  /** Delivers the held append once. Afterwards the network works again. */
  deliver(): Promise<void>
}

const holdable = (eventLog: EventLog): HeldLog => {
  let under: (() => Promise<unknown>) | null = null
  let holding = false
  return {
    eventLog: {
      ...eventLog,
      append: async (stream, expected, events) => {
        if (!holding || !stream.startsWith('ledger-')) return eventLog.append(stream, expected, events)
        under ??= () => eventLog.append(stream, expected, events)
        throw new UnknownOutcome('held in the network')
      },
    },
    hold: () => {
      holding = true
    },
    deliver: async () => {
      holding = false
      await under?.()
      under = null
    },
  }
}

const upstream = await profileUpstream()
const house = await openHouse({
  clock: 'movable',
  environment: {
    PROFILE_PROVIDER: 'http',
    PROFILE_HTTP_URL: `${upstream.url}/people/{lid}`,
    EGRESS_ALLOW: '127.0.0.0/8',
  },
})
const held = holdable(house.foundation.eventLog)
const ledger = createLedger({
  eventLog: held.eventLog,
  snapshot: snapshotFrom(house.foundation.pool, house.foundation.secrets.rowSeal),
  logger,
  clock: Date,
  limits: { unknownRetryMs: 100, retryPauseMs: 10, callerWaitMaxMs: 200 },
})
const first = await house.another({ foundation: { eventLog: held.eventLog, ledger } })
afterAll(async () => {
  await first.close()
  await house.close()
  await upstream.close()
})
beforeEach(async () => {
  partner = await house.partner({ permissions: ['profnet_scraping', 'ip_lookup'], credits: '20' })
  // The first process reads the new key from the event log a moment later.
  await until('both accept the key', async () => (await lookup(first)).status === 200)
  house.moveClock(120_000)
})
afterEach(async () => {
  expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
})

const ask = (url: string | null, path: string, body: unknown, headers = {}): Promise<Answer> =>
  send(`${url}${path}`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json', ...headers },
    body,
  })
const lookup = ({ apiUrl }: Pick<App, 'apiUrl'>): Promise<Answer> =>
  ask(apiUrl, '/v1/ip/lookup', { ip: places.private })
const fetchPerson = ({ apiUrl }: Pick<App, 'apiUrl'>, id = lid): Promise<Answer> =>
  ask(apiUrl, '/v1/profnet/profile', { id, cached: false }, { 'idempotency-key': 'raced' })

const outcomeOf = ({ status, headers }: Answer) => ({
  status,
  replayed: headers.get('idempotent-replayed'),
  charged: headers.get('credits-charged'),
  remaining: headers.get('credits-remaining'),
})

const known = (headline: string, id = lid) => ({
  headers: { date: new Date().toUTCString() },
  body: { lid: id, firstname: 'Zorvina', lastname: 'Quillfeather', headline },
})

const typesOf = async (type: string): Promise<number> =>
  (await house.eventsOf(partner.organizationId)).filter((event) => event.type === type).length

/** The first process's append is in progress with an unknown outcome. The second process repeats the call and waits for its source. */
const retried = async (id = lid): Promise<{ answer: Promise<Answer>; gather: () => void }> => {
  upstream.answers(() => known('At first'))
  held.hold()
  const unknown = await fetchPerson(first)
  expect({ status: unknown.status, code: unknown.body.code }).toEqual({ status: 504, code: 'SYS_003' })
  expect(unknown.headers.get('credits-charged')).toBeNull()
  house.moveClock(120_000)
  // While the claim exists, no other request can use the key.
  if (id !== lid) await house.query('delete from idempotent_calls')
  const source = Promise.withResolvers<void>()
  upstream.answers(() => source.promise.then(() => known('Again', id)))
  const answer = fetchPerson(house, id)
  await until('the retry asks its source', async () => upstream.requests.length === 1)
  await held.deliver()
  expect(await typesOf('CreditCharged')).toBe(1)
  return { answer, gather: source.resolve }
}

test('if the retry finds the charge in the log, it stays charged once, and the retry is answered', async () => {
  const { answer, gather } = await retried()
  gather()
  expect(outcomeOf(await answer)).toEqual({ status: 200, replayed: 'true', charged: '0', remaining: '15' })
  expect(outcomeOf(await fetchPerson(house))).toMatchObject({ status: 200, charged: '0', remaining: '15' })
  expect({ charged: await typesOf('CreditCharged'), back: await typesOf('CreditAdjusted') }).toEqual({
    charged: 1,
    back: 0,
  })
})

test('if the charge belongs to another request, the key belongs to that request, and this one gets IDEMP_001', async () => {
  const { answer, gather } = await retried('orsolya-quillfeather')
  gather()
  const refused = await answer
  expect({ status: refused.status, code: refused.body.code }).toEqual({ status: 422, code: 'IDEMP_001' })
  expect(refused.headers.get('credits-charged')).toBe('0')
  expect(outcomeOf(await fetchPerson(house))).toMatchObject({ status: 200, charged: '0', remaining: '15' })
  expect(await typesOf('CreditCharged')).toBe(1)
})
