import { Counter, Gauge, Histogram, type Registry } from '@prometheus-io/client'
import type { Meters, Sample } from '../call/capability.ts'

/**
 * The metrics of one process by the library's own classes. What is told on every call is counted in plain numbers and
 * becomes a metric only when the metrics are read: the library's increments build a key of text every time, and three of
 * them take longer than all the rest of letting a call in.
 */
export const createMeters = (registry: Registry): Meters => {
  const registers = [registry]
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
      new Gauge({
        name: `enrichment_${name}`,
        help,
        labelNames: labels,
        registers,
        async collect() {
          const samples = await read()
          this.reset()
          if (samples.length === 0 && labels.length === 0) this.remove()
          for (const { labels: of = {}, value } of samples) this.set(of, value)
        },
      })
    },
  }
}
