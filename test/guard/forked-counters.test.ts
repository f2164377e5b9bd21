/** Rate limits that the processes of one machine share through the one that forked them. */
import { pino } from 'pino'
import { afterEach, describe, expect, test } from 'vitest'
import { answerRateLimits, openForkedCounters } from '../../src/guard/forked-counters.ts'
import { createCounters, createRateLimiter } from '../../src/guard/rate-limit.ts'
import { type SharedRateLimiter, shareRateLimiter } from '../../src/guard/shared-rate-limiter.ts'
import { keyOf, passing, rateLimitContract, remainingOf } from '../contract/rate-limit.ts'
import { type ChannelPair, channelPair } from '../support/channel-pair.ts'
import { eventually } from '../support/service.ts'

type Fork = SharedRateLimiter & ChannelPair & { readonly written: string[] }
const opened: SharedRateLimiter[] = []

/** The primary's counters, a clock that moves by hand, and processes it forked. */
const installation = () => {
  let nowMs = 0
  const counters = createCounters({ now: () => nowMs })
  return {
    advance: async (ms: number): Promise<void> => {
      nowMs += ms
    },
    fork: async (answerMaxMs = 2_000): Promise<Fork> => {
      const pair = channelPair()
      const written: string[] = []
      answerRateLimits(pair.primary, counters)
      const limiter = await shareRateLimiter(openForkedCounters(pair.fork), {
        answerMaxMs,
        local: createRateLimiter(),
        logger: pino({ level: 'debug' }, { write: (line: string) => void written.push(line) }),
      })
      opened.push(limiter)
      return { ...limiter, ...pair, written }
    },
  }
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((limiter) => limiter.close()))
})

describe('rate limits of a fork', () => {
  rateLimitContract(async () => {
    const { fork, advance } = installation()
    return { limiter: await fork(), advance, close: async () => undefined }
  })
})

test('one limit for all forks, among calls at once as well; a denied call takes nothing from any window', async () => {
  const { fork, advance } = installation()
  const forks = await Promise.all([fork(), fork(), fork()])
  const key = keyOf(50, 1_000)
  const verdicts = await Promise.all(
    Array.from({ length: 300 }, (_, n) => forks[n % 3]?.take(key) ?? Promise.reject(new Error())),
  )
  expect(verdicts.filter(({ exceeded }) => exceeded === null)).toHaveLength(50)
  await advance(60_000)
  const [one] = forks
  expect(one && remainingOf(await one.take(key))).toEqual({ minute: 49, day: 949 })
})

test('all questions of a turn cross in one message', async () => {
  const one = await installation().fork()
  const before = one.sent.length
  const key = keyOf(1_000, 10_000)
  await Promise.all(Array.from({ length: 100 }, () => one.take(key)))
  expect(one.sent.length - before).toBe(1)
  await passing(one, key, 3)
  expect(one.sent.length - before).toBe(4)
})

test('a primary that does not answer is not waited for: forks count for themselves until it does', async () => {
  const { fork } = installation()
  const [one, other] = [await fork(50), await fork()]
  const key = keyOf(10, 1_000)
  expect([await passing(one, key, 6), await passing(other, key, 6)]).toEqual([6, 4])
  one.freeze()
  expect(await passing(one, key, 30)).toBe(10)
  expect(one.shared()).toBe(false)
  const asked = one.sent.length
  await passing(one, key, 30)
  // The probe alone.
  expect(one.sent.length - asked).toBeLessThanOrEqual(1)
  one.thaw()
  await eventually(async () => (one.shared() ? true : undefined))
  expect(await passing(one, key, 5)).toBe(0)
  expect(one.written.map((line) => JSON.parse(line).level)).toEqual([40, 30])
  expect(one.written[0]).toContain('the process that forked this one does not serve')
})

test('a primary that is gone: calls that wait are judged at once, and closing waits for nothing', async () => {
  const one = await installation().fork()
  const key = keyOf(5, 100)
  one.freeze()
  const verdicts = Promise.all(Array.from({ length: 20 }, () => one.take(key)))
  one.cut()
  expect((await verdicts).filter(({ exceeded }) => exceeded === null)).toHaveLength(5)
  expect(one.shared()).toBe(false)
  expect(await passing(one, keyOf(3, 100), 5)).toBe(3)
  await one.close()
})

test('closing waits for no answer of a primary that hangs', async () => {
  const one = await installation().fork(50)
  one.freeze()
  await passing(one, keyOf(10, 1_000), 10)
  await one.close()
})
