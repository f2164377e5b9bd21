import type { Channel } from '../concurrency/channel.ts'
import { within } from '../concurrency/deadline.ts'
import { addedUp, type ForkMetrics, type MetricData, mergedText, totalsOf } from './merged.ts'
import type { Metrics } from './metrics.ts'

/** How forks tell the process that forked them what they measure, and how that one tells it all together. */

const kinds = { now: 'metrics', last: 'lastMetrics' } as const
/** Prometheus waits 10 s for everything. */
const answerMaxMs = 1_000

/** In a fork: answers when it is asked. */
export const tellMetrics = (primary: Channel, { data }: Pick<Metrics, 'data'>): void =>
  primary.answer(kinds.now, data)

/** In a fork that ends: what it counted until now. */
export const tellLastMetrics = async (primary: Channel, { data }: Pick<Metrics, 'data'>): Promise<void> =>
  primary.tell(kinds.last, await data())

type Told = { readonly worker: number; readonly channel: Channel; last: readonly MetricData[] }

/**
 * What this process and its forks measure. A fork that does not answer within a second is counted, told without its
 * gauges, and goes on having counted what it last told; so does one that was killed.
 */
export const createForkedMetrics = (
  own: Pick<Metrics, 'data' | 'meters'>,
): { add(fork: { number: number; channel: Channel }): void; text(): Promise<string> } => {
  const forks = new Set<Told>()
  let gone: Promise<readonly MetricData[]> = Promise.resolve([])
  const unheard = own.meters.counter({
    name: 'unheard_processes_total',
    help: 'Times an api process did not tell its metrics within a second',
  })

  const ask = async (fork: Told): Promise<Told & { gauges: boolean }> => {
    const answer = within(fork.channel.ask(kinds.now, null), { waitMs: answerMaxMs }, () => null)
    const told = await answer.catch(() => null)
    if (told !== null) fork.last = told as readonly MetricData[]
    else if (fork.channel.isOpen()) unheard()
    return Object.assign(fork, { gauges: told !== null })
  }

  return {
    add: ({ number: worker, channel }) => {
      const fork: Told = { worker, channel, last: [] }
      forks.add(fork)
      channel.hear(kinds.last, (told) => {
        fork.last = told as readonly MetricData[]
      })
      channel.onClosed(() => {
        forks.delete(fork)
        gone = gone.then((before) => addedUp([before, fork.last]))
      })
    },
    text: async () => {
      const asked = await Promise.all([...forks].map(ask))
      // One that ended meanwhile is among those that are gone.
      const told = asked
        .filter((fork) => forks.has(fork))
        .map(({ worker, last, gauges }): ForkMetrics => ({ worker, metrics: gauges ? last : totalsOf(last) }))
      const ended = gone
      return mergedText(await own.data(), told, await ended)
    },
  }
}
