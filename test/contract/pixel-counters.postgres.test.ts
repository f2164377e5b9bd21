import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  answerMaxMs,
  CountersUnavailable,
  forgetHits,
  forgetPastPeriods,
  openPixelCounters,
  type PixelCounters,
} from '../../src/capabilities/pixel/counters.ts'
import { until } from '../support/house.ts'
import { databaseForFile } from '../support/postgres.ts'
import { takesAtMost } from '../support/takes-at-most.ts'
import { ask, freshOrganization, limit, pixelCountersContract } from './pixel-counters.ts'

const database = await databaseForFile({ max: 2 })
const { pool: aside } = database
const logger = pino({ level: 'silent' })

describe('pixel counters in PostgreSQL', () => {
  pixelCountersContract(async () => ({
    open: async () => openPixelCounters({ url: database.url, logger }),
    close: async () => undefined,
  }))
})

describe('while the database is slow', () => {
  let counters: PixelCounters
  beforeEach(() => {
    counters = openPixelCounters({ url: database.url, logger })
  })
  afterEach(() => counters.close())

  test('a hit waits a second, is refused, and is not counted when the database continues', async () => {
    const organizationId = freshOrganization()
    const rules = { blockedBy: null, limits: [limit('example.com', 10)] }
    await counters.take(ask(organizationId, rules))
    const holder = await aside.connect()
    await holder.query('begin')
    await holder.query('select used from pixel_counters where organization_id = $1 for update', [
      organizationId,
    ])
    const asked = [counters.take(ask(organizationId, rules)), counters.take(ask(organizationId, rules))]
    const late = await takesAtMost(answerMaxMs + 500, Promise.allSettled(asked))
    expect(late.map((one) => one.status === 'rejected' && one.reason)).toEqual([
      expect.any(CountersUnavailable),
      expect.any(CountersUnavailable),
    ])
    await holder.query('rollback')
    holder.release()
    await until('the database answers again', async () =>
      counters.take(ask(organizationId, rules)).then(
        () => true,
        () => false,
      ),
    )
    expect(await counters.used(organizationId, rules.limits)).toEqual([2])
  })

  test('when too many hits wait, further hits are refused immediately', async () => {
    const organizationId = freshOrganization()
    const rules = { blockedBy: null, limits: [limit('example.com', 100_000)] }
    const verdicts = await Promise.allSettled(
      Array.from({ length: 11_000 }, () => counters.take(ask(organizationId, rules))),
    )
    const fired = verdicts.filter(({ status }) => status === 'fulfilled').length
    expect(fired).toBeLessThanOrEqual(10_001)
    expect((await counters.used(organizationId, rules.limits))[0]).toBe(fired)
  })
})

describe('while the table is unreachable', () => {
  test('hits are refused within a second, and counted again afterwards; the beginning and the end are each logged once', async () => {
    const lines: string[] = []
    const counters = openPixelCounters({
      url: database.url,
      logger: pino({ level: 'info' }, { write: (line: string) => void lines.push(line) }),
    })
    const organizationId = freshOrganization()
    const rules = { blockedBy: null, limits: [limit('example.com', 10)] }
    await counters.take(ask(organizationId, rules))
    await aside.query('alter table pixel_counters rename to pixel_counters_away')
    for (let n = 0; n < 3; n++)
      await expect(counters.take(ask(organizationId, rules))).rejects.toThrow(CountersUnavailable)
    await aside.query('alter table pixel_counters_away rename to pixel_counters')
    expect((await counters.take(ask(organizationId, rules))).used).toEqual([2])
    expect(lines.map((line) => JSON.parse(line).level)).toEqual([40, 30])
    await counters.close()
    await expect(counters.take(ask(organizationId, rules))).rejects.toThrow(CountersUnavailable)
  })

  test('a hit waits at most a second for a database that cannot be reached', async () => {
    const counters = openPixelCounters({ url: 'postgres://nobody@127.0.0.1:1/none', logger })
    const rules = { blockedBy: null, limits: [limit('example.com', 10)] }
    const asked = counters.take(ask(freshOrganization(), rules))
    await expect(takesAtMost(answerMaxMs + 500, asked)).rejects.toThrow(CountersUnavailable)
    await counters.close()
  })
})

describe('cleanup', () => {
  test('deletes hit ids after a day and the counters of long past periods, but nothing that still counts', async () => {
    const counters = openPixelCounters({ url: database.url, logger })
    const organizationId = freshOrganization()
    const now = Date.now()
    const dayMs = 86_400_000
    const old = limit('example.com', 5, { atMs: now - 70 * dayMs })
    const month = limit('example.com', 5, { period: 'month', atMs: now })
    const today = limit('example.com', 5, { atMs: now })
    const rulesOf = (one: typeof old) => ({ blockedBy: null, limits: [one] })
    await counters.take(ask(organizationId, rulesOf(old), { hitId: 'old', atMs: now - 70 * dayMs }))
    await counters.take(ask(organizationId, rulesOf(month), { hitId: 'new', atMs: now }))
    await counters.take(ask(organizationId, rulesOf(today), { atMs: now - 23 * 3_600_000, hitId: 'younger' }))
    await forgetHits(aside)
    await forgetPastPeriods(aside)
    const { rows } = await aside.query('select hit_hash from pixel_hits where organization_id = $1', [
      organizationId,
    ])
    expect(rows).toHaveLength(2)
    expect(await counters.used(organizationId, [old, month, today])).toEqual([0, 1, 1])
    await counters.close()
  })
})
