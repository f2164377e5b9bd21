import { z } from 'zod'
import { remembered } from '../concurrency/remembered.ts'
import type { Outside } from '../egress/outside.ts'
import type { PageAnswer } from '../egress/page.ts'

/** The 95th percentile of the duration of calls: of this process, or of all processes from Prometheus. */
export type Latency =
  | {
      readonly kind: 'measured'
      readonly seconds: number
      /** The calls that it covers. */
      readonly of: string
      /** In the same hour yesterday; null: not known. */
      readonly yesterdaySeconds: number | null
      /** For each of the last hours that had calls, in the order of time. */
      readonly hours: readonly number[]
    }
  | { readonly kind: 'absent'; readonly why: string }

/** Null: this process answered no call. */
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

/** Prometheus gave no figure that can be shown. The message says why. */
class NoFigure extends Error {
  override name = 'NoFigure'
}

/** Answers are kept for some seconds. Never rejects: a figure that is not known is absent. */
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
      ...{ deadlineMs, redirectsMax: 0, wireBytesMax: bytesMax, decodedBytesMax: bytesMax },
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
    throw new NoFigure('Prometheus gave an answer that cannot be read', { cause })
  }
}

const reasonOf = (error: unknown): string =>
  error instanceof NoFigure ? error.message : 'Prometheus cannot be read'

/** Null for anything that is not a duration. */
const secondsOf = (one: z.infer<typeof sample> | undefined): number | null => {
  const seconds = one === undefined || one[1].trim() === '' ? Number.NaN : Number(one[1])
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : null
}
