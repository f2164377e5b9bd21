/** The guarantees of pixel counters, in one process and in several. */
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  CountersUnavailable,
  type HitAsk,
  type HitVerdict,
  type PixelCounters,
} from '../../src/capabilities/pixel/counters.ts'
import { periodStart } from '../../src/capabilities/pixel/period.ts'
import type { LimitWindow, MatchedRules } from '../../src/capabilities/pixel/rules-state.ts'
import type { PixelPeriod } from '../../src/events/pixel.ts'
import { exhaustive } from '../support/exhaustive.ts'

export type CountersUnderTest = {
  /** Opens the counters as another process would. The suite closes all counters that it opened. */
  open(): Promise<PixelCounters>
  close(): Promise<void>
}

let named = 0
/** An organization without any counts. */
export const freshOrganization = (): string => `org_${String(++named).padStart(26, '0')}`

const noon = Date.UTC(2026, 8, 14, 12)
const hourMs = 3_600_000
const dayMs = 24 * hourMs

export const limit = (
  domain: string,
  number: number,
  { period = 'day', atMs = noon }: { period?: PixelPeriod; atMs?: number } = {},
): LimitWindow => ({ domain, period, number, periodStart: periodStart(period, atMs) })

const limitedBy = (...limits: LimitWindow[]): MatchedRules => ({ blockedBy: null, limits })
const blockedBy = (domain: string): MatchedRules => ({ blockedBy: domain, limits: [] })

export const ask = (organizationId: string, rules: MatchedRules, rest: Partial<HitAsk> = {}): HitAsk => ({
  organizationId,
  host: 'www.example.com',
  hitId: null,
  atMs: noon,
  rules,
  ...rest,
})

const firing = (verdicts: readonly HitVerdict[]): number => verdicts.filter(({ fires }) => fires).length

/** Makes `clients` send hits one after the other until each has sent `rounds`. */
export const clientsOf = async (
  clients: number,
  rounds: number,
  take: (client: number, round: number) => Promise<HitVerdict>,
): Promise<HitVerdict[]> =>
  (
    await Promise.all(
      Array.from({ length: clients }, async (_, client) => {
        const verdicts: HitVerdict[] = []
        for (let round = 0; round < rounds; round++) verdicts.push(await take(client, round))
        return verdicts
      }),
    )
  ).flat()

const attemptsMax = 30

const isLate = (error: unknown): boolean =>
  error instanceof CountersUnavailable || (error instanceof pg.DatabaseError && error.code === canceled)
/** The statement took longer than its time limit. */
const canceled = '57014'

/** On a busy machine, requests can miss their time limits. They are then repeated, because late hits are not counted. */
const patient = (counters: PixelCounters): PixelCounters => {
  const repeated = async <Value>(request: () => Promise<Value>): Promise<Value> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await request()
      } catch (error) {
        if (!isLate(error) || attempt === attemptsMax) throw error
      }
    }
  }
  return {
    take: (hit) => repeated(() => counters.take(hit)),
    used: (organizationId, windows) => repeated(() => counters.used(organizationId, windows)),
    close: () => counters.close(),
  }
}

export const pixelCountersContract = (prepare: () => Promise<CountersUnderTest>): void => {
  let prepared: CountersUnderTest
  let opened: PixelCounters[]
  let counters: PixelCounters
  let organizationId: string
  const open = async (): Promise<PixelCounters> => {
    const one = patient(await prepared.open())
    opened.push(one)
    return one
  }
  beforeEach(async () => {
    prepared = await prepare()
    opened = []
    counters = await open()
    organizationId = freshOrganization()
  })
  afterEach(async () => {
    await Promise.all(opened.map((one) => one.close()))
    await prepared.close()
  })
  const take = (rules: MatchedRules, rest: Partial<HitAsk> = {}, by = counters): Promise<HitVerdict> =>
    by.take(ask(organizationId, rules, rest))
  const takeOnce = (hitId: string, rules: MatchedRules, by = counters): Promise<HitVerdict> =>
    take(rules, { hitId }, by)
  const usedOf = (...windows: LimitWindow[]): Promise<number[]> => counters.used(organizationId, windows)

  describe('a limit', () => {
    test('allows exactly that many hits to fire, and returns the count after each', async () => {
      const rules = limitedBy(limit('example.com', 3))
      const verdicts = []
      for (let n = 0; n < 5; n++) verdicts.push(await take(rules))
      expect(verdicts).toEqual([
        { rules, fires: true, used: [1] },
        { rules, fires: true, used: [2] },
        { rules, fires: true, used: [3] },
        { rules, fires: false, used: [3] },
        { rules, fires: false, used: [3] },
      ])
    })

    test('applies with its current value: hits that were counted stay counted', async () => {
      for (let n = 0; n < 4; n++) await take(limitedBy(limit('example.com', 4)))
      expect(await take(limitedBy(limit('example.com', 6)))).toMatchObject({ fires: true, used: [5] })
      expect(await take(limitedBy(limit('example.com', 2)))).toMatchObject({ fires: false, used: [5] })
      expect(await take(limitedBy(limit('example.com', 6)))).toMatchObject({ fires: true, used: [6] })
    })

    test('counts for one organization, one domain, one period and one day or month only', async () => {
      const others = [
        [freshOrganization(), limit('example.com', 1)],
        [organizationId, limit('example.org', 1)],
        [organizationId, limit('example.com', 1, { period: 'month' })],
        [organizationId, limit('example.com', 1, { atMs: noon + dayMs })],
        [organizationId, limit('example.com', 1, { period: 'month', atMs: noon + 30 * dayMs })],
      ] as const
      expect(await take(limitedBy(limit('example.com', 1)))).toMatchObject({ fires: true })
      for (const [organization, other] of others)
        expect(await counters.take(ask(organization, limitedBy(other)))).toMatchObject({
          fires: true,
          used: [1],
        })
      expect(await take(limitedBy(limit('example.com', 1)))).toMatchObject({ fires: false })
    })
  })

  describe('a hit under several limits', () => {
    const day = limit('example.com', 5)
    const month = limit('example.com', 3, { period: 'month' })
    const sub = limit('a.example.com', 2)

    test('counts against each limit', async () => {
      expect(await take(limitedBy(day, month, sub))).toMatchObject({ fires: true, used: [1, 1, 1] })
      expect(await take(limitedBy(day, month))).toMatchObject({ fires: true, used: [2, 2] })
      expect(await usedOf(day, month, sub)).toEqual([2, 2, 1])
    })

    test('is stopped by any one of them, and then counts against none', async () => {
      const rules = limitedBy(day, month, sub)
      expect(firing([await take(rules), await take(rules)])).toBe(2)
      for (let n = 0; n < 3; n++) expect(await take(rules)).toEqual({ rules, fires: false, used: [2, 2, 2] })
      expect(await usedOf(day, month, sub)).toEqual([2, 2, 2])
      expect(await take(limitedBy(day, month))).toMatchObject({ fires: true, used: [3, 3] })
      expect(await take(limitedBy(day, month))).toMatchObject({ fires: false, used: [3, 3] })
      expect(await take(limitedBy(day))).toMatchObject({ fires: true, used: [4] })
    })

    test('can be under as many limits as its host name has labels', async () => {
      const labels = Array.from({ length: 120 }, () => 'a')
      const limits = labels.flatMap((_, n) => {
        const domain = `${labels.slice(n).join('.')}.example.com`
        return [limit(domain, 2), limit(domain, 2, { period: 'month' })]
      })
      const rules = limitedBy(...limits)
      expect(firing([await take(rules), await take(rules), await take(rules)])).toBe(2)
      expect(new Set(await usedOf(...limits))).toEqual(new Set([2]))
    })
  })

  describe('simultaneous hits', () => {
    test('from 64 clients through two processes, under a limit of 5,000: exactly 5,000 fire', {
      skip: !exhaustive,
    }, async () => {
      const processes = [counters, await open()]
      const cap = limit('example.com', 5_000)
      const verdicts = await clientsOf(64, 100, (client, round) =>
        takeOnce(`${client}-${round}`, limitedBy(cap), processes[client % 2]),
      )
      expect(verdicts).toHaveLength(6_400)
      expect(firing(verdicts)).toBe(5_000)
      expect(await usedOf(cap)).toEqual([5_000])
      // Each of the 5,000 hits got a different count.
      const counts = verdicts.filter(({ fires }) => fires).map(({ used }) => used[0])
      expect(new Set(counts).size).toBe(5_000)
    })

    test('on overlapping limits, in any order, through three processes: all limits are respected, and every hit is answered', {}, async () => {
      const processes = [counters, await open(), await open()]
      const limits = Array.from({ length: 8 }, (_, n) => limit(`d${n}.example.com`, 40 + n))
      const fired = limits.map(() => 0)
      await clientsOf(48, 30, async (client, round) => {
        // Each client goes through the limits in a different order.
        const step = [1, 3, 5, 7][client % 4] ?? 1
        const chosen = [0, 1, 2].map((n) => (client + round * step + n * step) % limits.length)
        const rules = limitedBy(...chosen.flatMap((n) => limits[n] ?? []))
        const verdict = await takeOnce(`${client}-${round}`, rules, processes[client % 3])
        if (verdict.fires) for (const n of chosen) fired[n] = (fired[n] ?? 0) + 1
        return verdict
      })
      expect(await usedOf(...limits)).toEqual(fired)
      for (const [n, count] of fired.entries()) expect(count).toBeLessThanOrEqual(40 + n)
      expect(Math.max(...fired.map((count, n) => count - n))).toBe(40)
    })
  })

  describe('a hit with an id', () => {
    const rules = limitedBy(limit('example.com', 2))

    test('gets its first verdict again and is counted once', async () => {
      const first = await take(rules, { hitId: 'h1' })
      expect(first).toEqual({ rules, fires: true, used: [1] })
      await take(rules, { hitId: 'h2' })
      for (let n = 0; n < 3; n++) expect(await take(rules, { hitId: 'h1' })).toEqual(first)
      expect(await usedOf(...rules.limits)).toEqual([2])
    })

    test.each([
      ['a limit was raised', limitedBy(limit('example.com', 1)), limitedBy(limit('example.com', 9))],
      ['the rules went away', limitedBy(limit('example.com', 1)), limitedBy()],
      ['a block went', blockedBy('example.com'), limitedBy()],
      ['rules came', limitedBy(), limitedBy(limit('example.com', 1))],
    ])('gets its first verdict even if %s in the meantime', async (_, before, after) => {
      const first = await take(before, { hitId: 'h' })
      expect(first.rules).toEqual(before)
      expect(await take(after, { hitId: 'h' })).toEqual(first)
      expect(await take(after, { hitId: 'another' })).toMatchObject({ rules: after })
    })

    test('that fired does not fire while its host is blocked, and gets its first verdict again afterwards', async () => {
      const first = await take(rules, { hitId: 'h' })
      expect(first).toMatchObject({ fires: true, used: [1] })
      const block = blockedBy('example.com')
      for (let n = 0; n < 2; n++)
        expect(await take(block, { hitId: 'h' })).toEqual({ rules: block, fires: false, used: [] })
      expect(await take(rules, { hitId: 'h' })).toEqual(first)
      expect(await usedOf(...rules.limits)).toEqual([1])
    })

    test('sent by several clients before and after a block fires only for those that sent it before', async () => {
      const block = blockedBy('example.com')
      const asks = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? rules : block))
      const verdicts = await Promise.all(asks.map((one) => take(one, { hitId: 'h' })))
      expect(firing(verdicts.filter((_, n) => asks[n] === block))).toBe(0)
    })

    test('belongs to its host: the same id for another host is counted, judged and blocked separately', async () => {
      const at = (host: string, domainRules: MatchedRules) =>
        counters.take({ ...ask(organizationId, domainRules, { hitId: 'h' }), host })
      const here = limitedBy(limit('a.example', 2))
      const there = limitedBy(limit('b.example', 1))
      expect(await at('a.example', here)).toEqual({ rules: here, fires: true, used: [1] })
      expect(await at('b.example', there)).toEqual({ rules: there, fires: true, used: [1] })
      expect(await at('c.example', blockedBy('c.example'))).toMatchObject({ fires: false })
      expect(await at('www.a.example', here)).toEqual({ rules: here, fires: true, used: [2] })
      expect(await usedOf(...here.limits, ...there.limits)).toEqual([2, 1])
    })

    test('that was refused stays refused, even if there is room later', async () => {
      await take(limitedBy(limit('example.com', 1)))
      const refused = await take(limitedBy(limit('example.com', 1)), { hitId: 'h' })
      expect(refused).toMatchObject({ fires: false, used: [1] })
      expect(await take(limitedBy(limit('example.com', 9)), { hitId: 'h' })).toEqual(refused)
      expect(await usedOf(limit('example.com', 9))).toEqual([1])
    })

    test('sent 200 times simultaneously through two processes is one hit with one verdict', async () => {
      const processes = [counters, await open()]
      const verdicts = await clientsOf(100, 2, (client) => takeOnce('h', rules, processes[client % 2]))
      expect(verdicts).toHaveLength(200)
      for (const verdict of verdicts) expect(verdict).toEqual({ rules, fires: true, used: [1] })
      expect(await usedOf(...rules.limits)).toEqual([1])
    })

    test('among simultaneous others, in any order, through two processes: each is counted once', async () => {
      const processes = [counters, await open()]
      const cap = limitedBy(limit('example.com', 1_000))
      const verdicts = await clientsOf(32, 25, (client, round) =>
        takeOnce(
          `h${(client % 2 === 0 ? round : 24 - round) + 25 * (client % 4)}`,
          cap,
          processes[client % 2],
        ),
      )
      expect(firing(verdicts)).toBe(800)
      expect(await usedOf(...cap.limits)).toEqual([100])
    })

    test('belongs to its organization: the same id from another organization is a different hit', async () => {
      await take(rules, { hitId: 'h' })
      const elsewhere = freshOrganization()
      expect(await counters.take(ask(elsewhere, rules, { hitId: 'h' }))).toMatchObject({ used: [1] })
      expect(await counters.used(elsewhere, rules.limits)).toEqual([1])
    })

    test('is remembered for 24 hours, and is a new hit after that', async () => {
      const all = limitedBy(limit('example.com', 9))
      const at = (atMs: number) => take(all, { hitId: 'h', atMs })
      expect((await at(noon)).used).toEqual([1])
      expect((await at(noon + dayMs - 1)).used).toEqual([1])
      expect((await at(noon + dayMs)).used).toEqual([2])
      expect((await at(noon + 2 * dayMs - 1)).used).toEqual([2])
    })

    test('can have any id', async () => {
      const all = limitedBy(limit('example.com', 100))
      const ids = [
        'a',
        'A',
        ' ',
        '\0',
        '\n',
        '\ud800',
        '\ud801',
        'é',
        'e\u0301',
        '💥',
        "' or 1=1 --",
        '{}',
        'x'.repeat(128),
      ]
      for (const [n, hitId] of ids.entries()) expect((await take(all, { hitId })).used).toEqual([n + 1])
      for (const [n, hitId] of ids.entries()) expect((await take(all, { hitId })).used).toEqual([n + 1])
    })
  })

  test('many windows are returned together, in the requested order', async () => {
    const windows = Array.from({ length: 10_000 }, (_, n) => limit(`d${n}.example.com`, 5))
    await take(limitedBy(limit('d7.example.com', 5)))
    await take(limitedBy(limit('d9999.example.com', 5)))
    const used = await usedOf(...windows)
    expect(used).toHaveLength(10_000)
    expect(used.flatMap((count, n) => (count === 0 ? [] : [[n, count]]))).toEqual([
      [7, 1],
      [9999, 1],
    ])
  })

  test('a process that starts continues the counts of a process that ended', async () => {
    const rules = limitedBy(limit('example.com', 3))
    await take(rules, { hitId: 'h' })
    await take(rules)
    await counters.close()
    opened.splice(0, 1)
    const next = await open()
    expect(await take(rules, { hitId: 'h' }, next)).toMatchObject({ fires: true, used: [1] })
    expect(await take(rules, {}, next)).toMatchObject({ fires: true, used: [3] })
    expect(await take(rules, {}, next)).toMatchObject({ fires: false, used: [3] })
  })
}
