import { Counter, Gauge, Histogram, type Registry } from '@prometheus-io/client'
import type { Meters, Sample } from '../call/capability.ts'
import { within } from '../concurrency/deadline.ts'

/**
 * The metrics of one process, with the library's own classes. Values of every call are counted in plain numbers and
 * become a metric only when the metrics are read: the library's increments build a text key every time, and three of
 * them take longer than the rest of a call's admission.
 */
export const createMeters = (registry: Registry): Meters => {
  const registers = [registry]
  const asked: AskedFigures[] = []
  new Gauge({
    name: 'enrichment_figures_age_seconds',
    help: 'Age of the oldest figure in this answer, if the database or the event log did not answer in time; 0: all are current',
    registers,
    async collect() {
      // Registered first: the other gauges have begun to ask by the next microtask.
      await Promise.resolve()
      const ages = await Promise.all(asked.map(({ ageMs }) => ageMs()))
      this.set(Math.max(0, ...ages) / 1_000)
    },
  })
  const total: Meters['total'] = ({ name, help, labels = [] }, read) => {
    new Counter({
      name: `enrichment_${name}`,
      help,
      labelNames: labels,
      registers,
      collect() {
        this.reset()
        const samples = read()
        if (samples.length === 0 && labels.length === 0) this.remove()
        for (const { labels: of = {}, value } of samples) this.inc(of, value)
      },
    })
  }
  return {
    total,
    words: (meter, label, words) => {
      const counts = new Map<string, number>(words.map((word) => [word, 0]))
      total({ ...meter, labels: [label] }, () =>
        [...counts].map(([word, value]): Sample => ({ labels: { [label]: word }, value })),
      )
      return (word) => void counts.set(word, (counts.get(word) ?? 0) + 1)
    },
    counter: (meter) => {
      let value = 0
      total(meter, () => [{ value }])
      return () => {
        value++
      }
    },
    histogram: ({ name, help, labels = [], buckets }) => {
      const histogram = new Histogram({
        name: `enrichment_${name}`,
        help,
        labelNames: labels,
        buckets: [...buckets],
        registers,
      })
      return (value, of = {}) => histogram.observe(of, value)
    },
    gauge: ({ name, help, labels = [] }, read) => {
      const figures = askedFigures(read)
      asked.push(figures)
      new Gauge({
        name: `enrichment_${name}`,
        help,
        labelNames: labels,
        registers,
        async collect() {
          const samples = await figures.samples()
          this.reset()
          if (samples.length === 0 && labels.length === 0) this.remove()
          for (const { labels: of = {}, value } of samples) this.set(of, value)
        },
      })
    },
  }
}

/** How long an answer waits for figures that have to be queried. */
const askedMs = 1_000
/** The same for a source that did not answer last time. */
const askedAgainMs = 100
/** Older figures are left out. */
const keptMs = 300_000

type AskedFigures = {
  /** Current figures; the last known ones if the answer does not come in time or is an error. None if they are too old. */
  samples(): Promise<readonly Sample[]>
  /** The age of the figures that `samples` returns; 0 if they are current. */
  ageMs(): Promise<number>
}

/** Figures of this process are available immediately. Others are queried one at a time; while a query is open, no caller waits for it again. */
function askedFigures(read: Parameters<Meters['gauge']>[1]): AskedFigures {
  let known: { readonly samples: readonly Sample[]; readonly atMs: number } | null = null
  let open: Promise<readonly Sample[]> | null = null
  let telling: Promise<unknown> = Promise.resolve()
  let current = true

  const lastKnown = (): readonly Sample[] => {
    current = false
    return known === null || performance.now() - known.atMs > keptMs ? [] : known.samples
  }
  const told = (samples: readonly Sample[]): readonly Sample[] => {
    known = { samples, atMs: performance.now() }
    current = true
    return samples
  }
  const ask = (asking: Promise<readonly Sample[]>): Promise<readonly Sample[]> => {
    open = asking.then(told, lastKnown).finally(() => {
      open = null
    })
    return within(open, { waitMs: current ? askedMs : askedAgainMs }, lastKnown)
  }
  const samples = async (): Promise<readonly Sample[]> => {
    if (open !== null) return lastKnown()
    try {
      const given = read()
      return given instanceof Promise ? await ask(given) : told(given)
    } catch {
      return lastKnown()
    }
  }
  return {
    samples: () => {
      const answer = samples()
      telling = answer
      return answer
    },
    ageMs: async () => {
      await telling
      return current || known === null ? 0 : performance.now() - known.atMs
    },
  }
}
