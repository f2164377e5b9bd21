/**
 * A scheduled job writes off expired lots. They have no value after their expiry, according to this process's clock, not the
 * database's.
 */

import { randomUUID } from 'node:crypto'
import { expect, test, vi } from 'vitest'
import { balance } from '../../src/administration/credits/credits.ts'
import { organizationsAfter } from '../../src/administration/organizations/organizations.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { rowsOf } from '../../src/concurrency/query.ts'
import { accountOf, lotsOf } from '../../src/dashboard/queries.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { expireCredits } from '../../src/jobs/own-jobs.ts'
import { houseForFile } from '../support/house.ts'

const house = await houseForFile()

/** An organization whose only lot has two credits and expires. */
const withLot = async (expiresAt: string): Promise<string> => {
  const { organizationId } = await house.partner({ credits: '0' })
  await house.foundation.ledger.submit(organizationId, {
    key: 'grant/expiring',
    atMs: Date.parse('2026-01-01T00:00:00.000Z'),
    actor: 'cli',
    kind: 'grant',
    amount: parseCredits('2'),
    priority: 1,
    expiresAt,
    reason: 'plan',
  })
  await house.projected()
  return organizationId
}

const writtenOff = async (organizationId: string): Promise<number> =>
  (await house.eventsOf(organizationId)).filter(({ type }) => type === 'CreditExpired').length

test('a lot is written off when the clocks of the job and of the ledger have both reached its expiry, no matter what the database says', async () => {
  const { foundation } = house
  const past = '2026-01-03T00:00:00.000Z'
  const expired = await withLot(past)
  await expireCredits(foundation, Date.parse(past) - 1)
  expect(await writtenOff(expired)).toBe(0)
  await expireCredits(foundation, Date.parse(past))
  expect(await writtenOff(expired)).toBe(1)

  const toCome = Date.now() + 3_600_000
  const unexpired = await withLot(new Date(toCome).toISOString())
  await expect(expireCredits(foundation, toCome)).rejects.toThrow(
    `lots of ${unexpired} could not be written off`,
  )
  expect(await writtenOff(unexpired)).toBe(0)
})

test('a run that takes too long ends, and the next run writes off the remaining lots', async () => {
  const { foundation } = house
  const past = '2026-01-04T00:00:00.000Z'
  const expired = [await withLot(past), await withLot(past)]
  expect(await expireCredits(foundation, Date.parse(past), { maxMs: 0 })).toBe(0)
  expect(await Promise.all(expired.map(writtenOff))).toEqual([0, 0])
  await expireCredits(foundation, Date.parse(past))
  expect(await Promise.all(expired.map(writtenOff))).toEqual([1, 1])
})

test('every list of organizations shows the balance that the ledger has at that instant', async () => {
  const { foundation } = house
  const expiresAtMs = Date.now() + 3_600_000
  const organizationId = await withLot(new Date(expiresAtMs).toISOString())
  const balancesAt = async (nowMs: number) => {
    vi.spyOn(Date, 'now').mockReturnValue(nowMs)
    try {
      const { pool } = foundation
      const listed = await organizationsAfter(foundation, { after: '', max: 100 })
      const [account] = await rowsOf(pool, accountOf(organizationId, nowMs))
      const [lot] = await rowsOf(pool, lotsOf(organizationId, { max: 1, nowMs }))
      const own = (rows: { organization_id: string; balance_micro: string }[]) =>
        rows.find(({ organization_id }) => organization_id === organizationId)?.balance_micro
      return {
        ledger: formatCredits((await balance(foundation, organizationId)).balance),
        rows: [own(listed), account?.balance_micro],
        past: lot?.past_expiry,
      }
    } finally {
      vi.restoreAllMocks()
    }
  }
  expect(await balancesAt(expiresAtMs - 1)).toEqual({
    ledger: '2',
    rows: ['2000000', '2000000'],
    past: false,
  })
  expect(await balancesAt(expiresAtMs)).toEqual({ ledger: '0', rows: ['0', '0'], past: true })
})

test('a ledger that cannot be read does not delay others, and is named', async () => {
  const { ledger, eventLog } = house.foundation
  const partners = [await house.partner(), await house.partner()]
  for (const [n, { organizationId }] of partners.entries()) {
    const expiresAt = `2026-01-0${n + 1}T00:00:00.000Z`
    const grant = {
      kind: 'grant',
      amount: parseCredits('2'),
      priority: 1,
      expiresAt,
      reason: 'plan',
    } as const
    const from = { key: `grant/${n}`, atMs: Date.parse('2026-01-01T00:00:00.000Z'), actor: 'cli' }
    await ledger.submit(organizationId, { ...from, ...grant })
  }
  await house.projected()
  // `broken` is the organization whose lot expired first.
  const [broken = '', other = ''] = partners.map(({ organizationId }) => organizationId)
  const revision = await eventLog.lastRevision(ledgerStream(broken))
  await eventLog.append(ledgerStream(broken), revision ?? 'none', [
    { id: randomUUID(), type: 'OfALaterRelease', data: '{}', metadata: '{"schema_version":1}' },
  ])
  await expect(expireCredits(house.foundation, Date.now())).rejects.toThrow(
    `lots of ${broken} could not be written off`,
  )
  const events = await house.eventsOf(other)
  expect(events.at(-1)).toMatchObject({
    type: 'CreditExpired',
    data: { amount: '2' },
    metadata: { effective_at: '2026-01-02T00:00:00.000Z' },
  })
})

test('an organization with more expired lots than a run checks, whose ledger cannot be written, does not delay others', async () => {
  const { ledger, eventLog, pool } = house.foundation
  const { organizationId: broken } = await house.partner({ credits: '0' })
  const grants = Array.from({ length: 1_000 }, (_, n) =>
    ledger.submit(broken, {
      key: `grant/${n}`,
      atMs: Date.parse('2026-01-01T00:00:00.000Z'),
      actor: 'cli',
      kind: 'grant',
      amount: 1n,
      priority: 1,
      expiresAt: '2026-01-02T00:00:00.000Z',
      reason: 'plan',
    }),
  )
  await Promise.all(grants)
  const other = await withLot('2026-01-03T00:00:00.000Z')
  const revision = await eventLog.lastRevision(ledgerStream(broken))
  await eventLog.append(ledgerStream(broken), revision ?? 'none', [
    { id: randomUUID(), type: 'OfALaterRelease', data: '{}', metadata: '{"schema_version":1}' },
  ])
  const { rows } = await pool.query('select from account_lots where organization_id = $1', [broken])
  expect(rows).toHaveLength(1_000)
  await expect(expireCredits(house.foundation, Date.now())).rejects.toThrow(broken)
  expect(await writtenOff(other)).toBe(1)
})
