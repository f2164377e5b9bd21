import { Histogram } from '@prometheus-io/client'

/** Of one kind of call: how many took how long. */
export type Durations = {
  /** Costs a comparison per bucket and no object. */
  add(seconds: number): void
}

type Counted = {
  readonly capability: string
  readonly outcome: string
  /** Per bucket, not cumulated; the last one holds what was longer than every bound. */
  readonly buckets: Float64Array
  sum: number
}

/**
 * A histogram that counts in plain numbers and takes the shape of the library's when it is read. The library's own
 * `observe` looks its labels up by text and builds two objects, every time.
 */
export class CallDurations extends Histogram<'capability' | 'outcome'> {
  readonly #described: { readonly name: string; readonly help: string }
  readonly #bounds: readonly number[]
  readonly #counted: Counted[] = []

  constructor(configuration: {
    name: string
    help: string
    buckets: number[]
    registers: NonNullable<ConstructorParameters<typeof Histogram>[0]['registers']>
  }) {
    super({ ...configuration, labelNames: ['capability', 'outcome'] })
    this.#described = configuration
    this.#bounds = configuration.buckets
  }

  of(capability: string, outcome: string): Durations {
    const bounds = this.#bounds
    const counted: Counted = {
      capability,
      outcome,
      buckets: new Float64Array(bounds.length + 1),
      sum: 0,
    }
    this.#counted.push(counted)
    return {
      add: (seconds) => {
        let i = 0
        while (i < bounds.length && seconds > (bounds[i] ?? 0)) i++
        counted.buckets[i] = (counted.buckets[i] ?? 0) + 1
        counted.sum += seconds
      },
    }
  }

  /** What the library asks of a histogram when it is read, as text or otherwise. */
  async getForPromString() {
    const { name, help } = this.#described
    return {
      name,
      help,
      type: 'histogram',
      aggregator: 'sum',
      values: this.#counted.flatMap(({ capability, outcome, buckets, sum }) => {
        const sharedLabels = { capability, outcome }
        let calls = 0
        const cumulated = Array.from(buckets, (count, i) => {
          calls += count
          return {
            labels: { le: this.#bounds[i] ?? '+Inf' },
            sharedLabels,
            value: calls,
            metricName: `${name}_bucket`,
          }
        })
        return [
          ...cumulated,
          { labels: {}, sharedLabels, value: sum, metricName: `${name}_sum` },
          { labels: {}, sharedLabels, value: calls, metricName: `${name}_count` },
        ]
      }),
    }
  }
}
