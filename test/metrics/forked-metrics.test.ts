/** What a process and its forks measure, as one text: totals add up and never fall, gauges are each process's own. */
import { expect, test } from 'vitest'
import { createForkedMetrics, tellLastMetrics, tellMetrics } from '../../src/metrics/forked-metrics.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { channelPair } from '../support/channel-pair.ts'
import { eventually } from '../support/service.ts'

const primary = () => {
  const own = createMetrics()
  const forked = createForkedMetrics(own)
  const fork = (number: number) => {
    const metrics = createMetrics()
    const pair = channelPair()
    tellMetrics(pair.fork, metrics)
    forked.add({ number, channel: pair.primary })
    const call = (times: number, seconds = 0.004): void => {
      for (let i = 0; i < times; i++)
        metrics.call.answered('ip_lookup', 'answered', undefined, seconds, 1_500_000n)
    }
    return { ...pair, ...metrics, call }
  }
  const lines = async (): Promise<Map<string, number>> =>
    new Map(
      (await forked.text())
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('#'))
        .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
    )
  return { own, fork, lines, text: forked.text }
}

const calls = 'enrichment_calls_total{capability="ip_lookup",outcome="answered",code=""}'
const charged = 'enrichment_credits_charged_total{capability="ip_lookup"}'
const unheard = 'enrichment_unheard_processes_total'
const sum = (told: Map<string, number>, word: string): number =>
  [...told].filter(([name]) => name.includes(word)).reduce((all, [, value]) => all + value, 0)

test('totals and histograms are the sums of all processes', async () => {
  const { own, fork, lines } = primary()
  const [one, two] = [fork(1), fork(2)]
  own.call.answered('ip_lookup', 'answered', undefined, 0.004, 1_500_000n)
  one.call(2)
  two.call(3, 4)
  const told = await lines()
  expect([told.get(calls), told.get(charged)]).toEqual([6, 9])
  const buckets = [...told].filter(
    ([name]) => name.includes('_bucket') && name.includes('"ip_lookup"') && name.includes('"answered"'),
  )
  expect(buckets.find(([name]) => name.includes('le="0.005"'))?.[1]).toBe(3)
  expect(buckets.find(([name]) => name.includes('le="+Inf"'))?.[1]).toBe(6)
})

test('gauges of a fork carry its number, those of the process itself do not', async () => {
  const { own, fork, lines } = primary()
  const one = fork(7)
  own.watch({ rateLimitsShared: () => true })
  one.watch({ rateLimitsShared: () => false })
  const told = await lines()
  expect(told.get('enrichment_rate_limiter_degraded')).toBe(0)
  expect(told.get('enrichment_rate_limiter_degraded{worker="7"}')).toBe(1)
})

test('each metric is told once, with its help and type', async () => {
  const { fork, text } = primary()
  fork(1)
  fork(2)
  const types = [...(await text()).matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name)
  expect(types.length).toBeGreaterThan(10)
  expect(new Set(types).size).toBe(types.length)
})

test('a process that ends leaves what it counted: in order all of it, killed what it last told', async () => {
  const { fork, lines } = primary()
  const [orderly, killed] = [fork(1), fork(2)]
  orderly.call(1)
  killed.call(10)
  expect((await lines()).get(calls)).toBe(11)
  orderly.call(5)
  killed.call(5)
  await tellLastMetrics(orderly.fork, orderly)
  await eventually(async () => (orderly.sent.length >= 2 ? true : undefined))
  await new Promise(setImmediate)
  orderly.cut()
  killed.cut()
  expect((await lines()).get(calls)).toBe(16)
  const next = fork(1)
  next.call(4)
  const told = await lines()
  expect(told.get(calls)).toBe(20)
  // Nothing else of them is left.
  expect(sum(told, 'worker="2"')).toBe(0)
  expect(told.get(unheard)).toBe(0)
})

test('one that does not answer within a second is told without its gauges, and its totals do not fall', async () => {
  const { fork, lines } = primary()
  const [quick, stuck] = [fork(1), fork(2)]
  quick.call(1)
  stuck.call(2)
  expect((await lines()).get(calls)).toBe(3)
  stuck.freeze()
  quick.call(1)
  const startedMs = performance.now()
  const told = await lines()
  expect(performance.now() - startedMs).toBeLessThan(3_000)
  expect(told.get(calls)).toBe(4)
  expect([...told.keys()].some((name) => name.includes('worker="1"'))).toBe(true)
  expect([...told.keys()].some((name) => name.includes('worker="2"'))).toBe(false)
  expect((await lines()).get(unheard)).toBeGreaterThanOrEqual(1)
})
