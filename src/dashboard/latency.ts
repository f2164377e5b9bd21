import { z } from 'zod'
import { remembered } from '../concurrency/remembered.ts'
import type { Outside } from '../egress/outside.ts'
import type { PageAnswer } from '../egress/page.ts'

/** The 95th percentile of call durations, from this process or, for all processes, from Prometheus. */
export type Latency =
  | {
      readonly kind: 'measured'
      readonly seconds: number
      /** The calls that the figure covers. */
      readonly of: string
      /** The figure for the same hour yesterday; null if unknown. */
      readonly yesterdaySeconds: number | null
      /** One figure for each recent hour with calls, oldest first. */
      readonly hours: readonly number[]
    }
  | { readonly kind: 'absent'; readonly why: string }

/** The figure of this process; null if it has not answered a call yet. */
export const latencyOfProcess = (seconds: number | null): Latency | null =>
  seconds === null
    ? null
    : { kind: 'measured', seconds, of: 'since this process started', yesterdaySeconds: null, hours: [] }

const deadlineMs = 1_000
const bytesMax = 64 * 1024
const keptMs = 5_000
const [hourSeconds, daySeconds] = [3_600, 86_400]
const p95 = 'histogram_quantile(0.95, sum by (le) (rate(enrichment_call_duration_seconds_bucket[1h])))'

/** A sample is a time and a number as text; `NaN` means that there were no calls. */
const sample = z.tuple([z.number(), z.string()])
const result = z.object({ value: sample.optional(), values: z.array(sample).max(50).optional() })
const answerShape = z.object({
  status: z.literal('success'),
  data: z.object({ result: z.array(result).max(1) }),
})

/** Thrown if Prometheus did not return a usable figure. The message contains the reason. */
class NoFigure extends Error {
  override name = 'NoFigure'
}

/** Never rejects; an unknown figure is returned as `absent`. Figures are cached for five seconds. */
export const latencyFromPrometheus = ({
  url,
  fetchUpstream,
  nowMs = Date.now,
}: {
  readonly url: string
  readonly fetchUpstream: Outside['fetchUpstream']
  readonly nowMs?: () => number
}): (() => Promise<Latency>) => {
  const samplesOf = async (path: string, parameters: Record<string, string>) => {
    const address = new URL(path, url.endsWith('/') ? url : `${url}/`)
    address.search = new URLSearchParams({ query: p95, ...parameters }).toString()
    const answer = await fetchUpstream({
      url: address.href,
      accept: ['application/json'],
      deadlineMs,
      redirectsMax: 0,
      wireBytesMax: bytesMax,
      decodedBytesMax: bytesMax,
    })
    const { value, values } = resultIn(answer)
    return values ?? (value === undefined ? [] : [value])
  }
  const look = async (): Promise<Latency> => {
    const now = Math.floor(nowMs() / 1_000)
    const [start, end] = [String(now - daySeconds), String(now)]
    const [instant, range] = await Promise.all([
      samplesOf('api/v1/query', { time: end }).catch(reasonOf),
      samplesOf('api/v1/query_range', { start, end, step: String(hourSeconds) }).catch(() => []),
    ])
    if (typeof instant === 'string') return { kind: 'absent', why: instant }
    const seconds = secondsOf(instant[0])
    if (seconds === null) return { kind: 'absent', why: 'no calls in the last hour' }
    const hours = range.map(secondsOf).filter((one) => one !== null)
    const yesterday = range.find(([at]) => at === now - daySeconds)
    return { kind: 'measured', seconds, of: 'last hour', yesterdaySeconds: secondsOf(yesterday), hours }
  }
  return remembered(look, { keptMs })
}

const resultIn = (answer: PageAnswer): z.infer<typeof result> => {
  if (answer.kind === 'timeout') throw new NoFigure('Prometheus did not answer in time')
  if (answer.kind !== 'page')
    throw new NoFigure(`Prometheus cannot be read: ${answer.kind} (${answer.detail})`)
  if (answer.status !== 200) throw new NoFigure(`Prometheus answered with status ${answer.status}`)
  try {
    return answerShape.parse(JSON.parse(answer.body.toString())).data.result[0] ?? {}
  } catch (cause) {
    throw new NoFigure('Prometheus returned an answer that cannot be read', { cause })
  }
}

const reasonOf = (error: unknown): string =>
  error instanceof NoFigure ? error.message : 'Prometheus cannot be read'

/** The duration in a sample; null if the sample is not a duration. */
const secondsOf = (one: z.infer<typeof sample> | undefined): number | null => {
  const seconds = one === undefined || one[1].trim() === '' ? Number.NaN : Number(one[1])
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : null
}
