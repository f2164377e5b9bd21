/**
 * A host with a wrong clock. A lot that is written off and a month that is closed cannot be restored, and corrections would be dated in
 * another month, so all are refused while this host's clock and the database's clock differ.
 */
import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { declarations as credits } from '../../src/administration/credits/commands.ts'
import { declarations as ledgers } from '../../src/administration/ledgers/commands.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { createClockWatch } from '../../src/foundation/clocks.ts'
import { expireDueCredits } from '../../src/jobs/own-jobs.ts'
import { openHouse } from '../support/house.ts'

const dayMs = 86_400_000
const minuteMs = 60_000

let aheadMs = 0

const { now } = Date
// Before the house is opened, because it keeps the function.
vi.spyOn(Date, 'now').mockImplementation(() => now() + aheadMs)
const house = await openHouse()
afterAll(async () => {
  await house.close()
  vi.restoreAllMocks()
})
beforeEach(() => {
  aheadMs = 0
})

/** An organization with a lot that expires in the given time. */
const withLot = async (expiresInMs: number): Promise<string> => {
  const { organizationId } = await house.partner({ credits: '0' })
  await house.foundation.ledger.submit(organizationId, {
    key: 'grant/expiring',
    atMs: Date.now(),
    actor: 'cli',
    kind: 'grant',
    amount: parseCredits('2'),
    priority: 1,
    expiresAt: new Date(Date.now() + expiresInMs).toISOString(),
    reason: 'plan',
  })
  await house.projected()
  return organizationId
}

const recorded = async (organizationId: string): Promise<string[]> =>
  (await house.eventsOf(organizationId)).map(({ type }) => type)

const declared = (wanted: string, given: object) => {
  const command = [...credits, ...ledgers].find(({ name }) => name === wanted)
  const context = {
    foundation: house.foundation,
    operator: { actor: 'cli', role: 'admin' as const },
    progress: () => undefined,
  }
  const asked = command?.read({ ...given })
  return {
    plan: async () => await asked?.plan(context as never),
    run: async () => await asked?.run(context as never),
  }
}

const close = (organization: string, month: string) => declared('ledger close', { organization, month }).run()

test.each([40 * dayMs, 16 * minuteMs])(
  '%i ms ahead: no lot is written off, no month is closed and no credits are granted',
  async (ms) => {
    const organizationId = await withLot(ms - minuteMs)
    const month = new Date(Date.now() + ms - 32 * dayMs).toISOString().slice(0, 7)
    aheadMs = ms
    await expect(expireDueCredits(house.foundation)).rejects.toThrow(
      /differ by \d+ s; correct the wrong one, because no credits are written off/,
    )
    await expect(close(organizationId, month)).rejects.toThrow(/no month is closed until they agree/)
    const grant = declared('credits grant', { organization: organizationId, amount: '1' })
    await expect(grant.plan()).rejects.toThrow(/no command changes money until they agree/)
    await expect(grant.run()).rejects.toThrow(/no command changes money until they agree/)
    expect(await recorded(organizationId)).toEqual(['OrganizationRegistered', 'CreditGranted'])
  },
)

test("14 minutes ahead: this process's clock counts", async () => {
  const organizationId = await withLot(minuteMs)
  aheadMs = 14 * minuteMs
  await expireDueCredits(house.foundation)
  expect(await recorded(organizationId)).toContain('CreditExpired')
})

test('calls are refused while the clocks differ by more than 15 minutes, and accepted when they agree again', async () => {
  const partner = await house.partner()
  const call = () => house.lookup(partner, { ip: '81.2.69.142' })
  const statuses: [number, number][] = []
  for (const [difference, status] of [
    [14 * minuteMs, 200],
    [16 * minuteMs, 503],
    [-14 * minuteMs, 200],
    [-16 * minuteMs, 503],
    [dayMs, 503],
    [0, 200],
  ] as const) {
    aheadMs = difference
    statuses.push([(await call()).status, status])
  }
  for (const [status, expected] of statuses) expect(status).toBe(expected)
  aheadMs = dayMs
  for (const apiKey of [partner.apiKey, 'no key']) {
    const refused = await house.lookup({ ...partner, apiKey }, { ip: '81.2.69.142' })
    expect([refused.status, refused.body.code, refused.headers.get('retry-after')]).toEqual([
      503,
      'SYS_002',
      '30',
    ])
  }
  expect((await fetch(`${house.apiUrl}/readyz`)).status).toBe(503)
  const { checks } = JSON.parse(await (await fetch(`${house.metricsUrl}/readyz`)).text())
  expect(checks.clock).toEqual({
    status: 'failed',
    found: [expect.stringMatching(/^this host's clock is 86\d{3} s ahead of the database's/)],
  })
  const calls = (await house.eventsOf(partner.organizationId)).filter(({ type }) => type === 'KeyUsed')
  expect(calls).toHaveLength(3)
})

describe('the comparison', () => {
  const logged: unknown[] = []
  const log = (_: object, message: string): void => void logged.push(message)
  const logger = { info: log, warn: log, error: log }
  const watchOf = (answer: () => Promise<Date>) =>
    createClockWatch({
      pool: { query: async () => ({ rows: [{ now: await answer() }] }) } as never,
      logger,
    })
  beforeEach(() => void logged.splice(0))

  test('has not happened: calls are refused', async () => {
    const watch = watchOf(() => Promise.reject(new Error('away')))
    expect(watch.failure()?.message).toContain('not been read')
    await watch.watch()
    expect(watch.failure()?.message).toContain('not been read')
    watch.close()
  })

  test.each([
    ['ahead of', dayMs],
    ['behind', -dayMs],
  ])(
    "shows that this host's clock is %s the database's, and the message names both remedies",
    async (where, ms) => {
      const watch = watchOf(async () => new Date(Date.now() - ms))
      await watch.watch()
      watch.close()
      expect(logged).toEqual([
        expect.stringMatching(
          new RegExp(
            `this host's clock is 86\\d{3} s ${where} the database's, so this process refuses calls until they agree. If every host reports this, correct the clock of the database's host`,
          ),
        ),
      ])
    },
  )
})
