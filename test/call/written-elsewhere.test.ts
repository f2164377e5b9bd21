/**
 * A call that another process was to write, which did, and whose answer never came: this process finds it in the ledger. It
 * is this call's own charge, and its caller is told so, with an Idempotency-Key or without.
 */
import pino from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { createLedger, type Ledger, type LocalLedger } from '../../src/ledger/commit.ts'
import { snapshotFrom } from '../../src/ledger/snapshot.ts'
import { type App, startApp } from '../../src/start/app.ts'
import { type Answer, type House, openHouse, type Partner, places, send, until } from '../support/house.ts'

const logger = pino({ level: 'silent' })
let house: House
let app: App
let partner: Partner
let isLost = false

beforeAll(async () => {
  house = await openHouse()
  const { pool, secrets, eventLog } = house.foundation
  const processOf = (): LocalLedger =>
    createLedger({ eventLog, snapshot: snapshotFrom(pool, secrets.rowSeal), logger, clock: Date })
  const own = processOf()
  const owner = processOf()
  const ledger: Ledger = {
    ...own,
    submit: async (organizationId, command) => {
      if (!isLost) return own.submit(organizationId, command)
      const { revision } = await own.figures(organizationId, { atMs: command.atMs })
      // Otherwise its append is the same as the one that follows here, which then succeeds as a repetition.
      await grant({ ledger: owner }, { ...grantOfOne, organizationId })
      await owner.submit(organizationId, command)
      return own.submit(organizationId, { absentUpTo: revision, ...command, passed: 'on' })
    },
  }
  const { foundation, config } = house
  app = await startApp({ ...foundation, ledger }, { ...config, ROLES: ['api'], LEDGER_OWNERS: 'off' }, logger)
  partner = await house.partner({ credits: '20' })
  await until('the key is known', async () => (await lookup(null, places.private)).status === 200)
})
afterAll(async () => {
  await app?.close()
  await house?.close()
})

const grantOfOne = {
  ...{ amount: parseCredits('1'), priority: 100, expiresAt: null, reason: 'test', actor: 'system' },
}

const lookup = (key: string | null, ip: string = places.london): Promise<Answer> =>
  send(`${app.apiUrl}/v1/ip/lookup`, {
    headers: {
      ...{ 'x-api-key': partner.apiKey, 'content-type': 'application/json' },
      ...(key === null ? {} : { 'idempotency-key': key }),
    },
    body: { ip },
  })

const told = ({ status, headers }: Answer) => ({
  status,
  charged: headers.get('credits-charged'),
  replayed: headers.get('idempotent-replayed'),
})

test.each([null, 'once'])(
  'its caller is told the charge, which is there once (Idempotency-Key: %s)',
  async (key) => {
    const before = (await house.eventsOf(partner.organizationId)).length
    isLost = true
    const answer = await lookup(key)
    isLost = false
    expect(told(answer)).toEqual({ status: 200, charged: '1', replayed: null })
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expect(events.map(({ type }) => type)).toEqual(['CreditGranted', 'KeyUsed', 'CreditCharged'])
    expect(events[1]?.metadata.request_id).toBe(answer.headers.get('x-request-id'))
    if (key !== null) expect(told(await lookup(key))).toEqual({ status: 200, charged: '0', replayed: 'true' })
  },
)
