import { AggregatorRegistry, type PrometheusContentType } from '@prometheus-io/client'

/**
 * The metrics of a process and of those it forked, as one text. What counts adds up: totals and histograms are those of
 * all processes, also of such as are gone, since a total that falls would look like a restart and be counted twice. What
 * cannot be added, the gauges, is told by each process: those of forks carry the label `worker`.
 */

/** A metric as the library gives it as data; it has crossed from another process as JSON. */
export type MetricData = {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly values: readonly {
    readonly value: number | null
    readonly labels: Readonly<Partial<Record<string, string | number>>>
    readonly metricName?: string
  }[]
}

/** What a fork told, and its number. */
export type ForkMetrics = { readonly worker: number; readonly metrics: readonly MetricData[] }

/** As Prometheus reads it. `gone`: what forks counted that have ended. */
export const mergedText = (
  own: readonly MetricData[],
  forks: readonly ForkMetrics[],
  gone: readonly MetricData[],
): Promise<string> =>
  summed([
    own,
    gone,
    ...forks.map(({ worker, metrics }) =>
      metrics.map((metric) =>
        metric.type === 'gauge'
          ? {
              ...metric,
              values: metric.values.map((value) => ({ ...value, labels: { ...value.labels, worker } })),
            }
          : metric,
      ),
    ),
  ]).metrics()

/** What counts of several processes, or of one at several times of its number. Gauges are left out. */
export const addedUp = (told: readonly (readonly MetricData[])[]): Promise<readonly MetricData[]> =>
  summed(told.map(totalsOf)).getMetricsAsJSON()

/** Without its gauges: what a process that does not answer goes on having counted. */
export const totalsOf = (metrics: readonly MetricData[]): readonly MetricData[] =>
  metrics.filter(({ type }) => type !== 'gauge')

/** The library adds what has the same labels. Some of its own metrics ask for another way, such as the mean of a lag. */
const summed = (told: readonly (readonly MetricData[])[]) =>
  AggregatorRegistry.aggregate<PrometheusContentType>(
    told.map((metrics) =>
      metrics.map((metric) => ({
        ...metric,
        aggregator: 'sum',
        // JSON has neither infinity nor NaN: what a process could not tell is left out.
        values: metric.values.filter(({ value }) => value !== null),
      })),
    ),
  )
