import { within } from '../../concurrency/deadline.ts'

/** One check of an installation. The command "doctor", the operations pages, `/readyz` and `/metrics` all show the same list of checks. */
export type Check<On> = {
  /** The name that `doctor` prints. */
  readonly name: string
  /** A `value` measured by `look` counts as a warning or a fault if it is above these numbers. */
  readonly bound?: {
    readonly unit: 'seconds' | 'days' | 'share'
    readonly warning?: number
    readonly fault?: number
  }
  /** The severity of any other problem that `look` finds. */
  readonly severity: 'warning' | 'fault'
  /** The remedy, unless `look` returns a more specific one. */
  readonly advice: string
  /** Whether `advice` is also the remedy if the check fails or gets no answer in time. */
  readonly advisesUnseen?: boolean
  /** The check's name in `/readyz`, and whether a fault makes the process not ready. */
  readonly readiness?: { readonly name: string; readonly counts: 'always' | 'where rows are shown' | 'never' }
  /** Help texts by gauge name. All gauges of a check have the same labels. */
  readonly gauges?: Readonly<Record<string, string>>
  readonly labels?: readonly string[]
  /** Returns an empty list if the check does not concern this installation. An exception counts as a fault. */
  readonly look: (on: On) => Looked | Promise<Looked>
}

export type Level = 'ok' | 'warning' | 'fault'
type Figures = Readonly<Record<string, number | string | null>>
export type Found = {
  /** A sentence that contains the value, but never a secret. */
  readonly says: string
  readonly state: 'fine' | 'wrong' | { readonly value: number }
  readonly severity?: 'warning' | 'fault'
  readonly advice?: string
  readonly figures?: Figures
}
type Sample = { readonly labels?: Record<string, string>; readonly value: number }
type Looked = Found | readonly Found[] | Measured
type Measured = {
  readonly found: Found | readonly Found[]
  /** Samples by the name of their gauge. */
  readonly samples?: Readonly<Record<string, readonly Sample[]>>
  /** The check's level in `/readyz`. Default: the level of the worst finding. Null leaves the check out of `/readyz`. */
  readonly ready?: Level | null
  /** Additional members of the check in `/readyz`, which only operators see. */
  readonly details?: Readonly<Record<string, unknown>>
}

export type Finding = {
  /** The subject of the check, in a word or two. */
  readonly about: string
  /** `warning`: the installation works, but needs attention soon. `fault`: a part of the installation does not work. */
  readonly level: Level
  readonly says: string
  /** The remedy; null if none is needed. */
  readonly remedy: string | null
  readonly figures: Figures
}

export const fine = (says: string, figures: Figures = {}): Found => ({ says, state: 'fine', figures })

export const wrong = (says: string, more: Pick<Found, 'severity' | 'advice' | 'figures'> = {}): Found => ({
  says,
  state: 'wrong',
  ...more,
})

export const measured = (
  value: number,
  says: string,
  more: Pick<Found, 'advice' | 'figures'> = {},
): Found => ({ says, state: { value }, ...more })

/** A completed check. If some findings may be missing, `failure` is the reason. */
export type Seen = Omit<Measured, 'found'> & {
  readonly findings: readonly Finding[]
  readonly failure: 'failed' | 'timed_out' | null
}

/** Runs one check to its end. Never rejects. */
export async function see<On>(check: Check<On>, on: On): Promise<Seen> {
  try {
    const looked = await check.look(on)
    const { found, ...more } = 'found' in looked ? looked : { found: looked }
    return { ...more, findings: [found].flat().map((one) => findingOf(check, one)), failure: null }
  } catch (error) {
    return unseen(check, 'failed', `the check failed: ${reasonOf(error)}`)
  }
}

/** The deadline of a check. Requests to servers have their own, shorter deadlines. */
const lookMaxMs = 10_000

export const seeWithin = <On>(check: Check<On>, seen: Promise<Seen>, maxMs = lookMaxMs): Promise<Seen> =>
  within(seen, { waitMs: maxMs }, () => unseen(check, 'timed_out', `no answer within ${maxMs / 1_000} s`))

/** Runs all checks at the same time; the findings keep the order of the checks. Never rejects. */
export async function lookAt<On>(checks: readonly Check<On>[], on: On, maxMs?: number): Promise<Finding[]> {
  const seen = await Promise.all(checks.map((check) => seeWithin(check, see(check, on), maxMs)))
  return seen.flatMap(({ findings }) => findings)
}

const unseenAdvice =
  'This check has no result. If this continues, look at the check "database", the log of this process, and the load of its machine.'

const unseen = (
  { name, advice, advisesUnseen = false }: Pick<Check<never>, 'name' | 'advice' | 'advisesUnseen'>,
  failure: 'failed' | 'timed_out',
  says: string,
): Seen => {
  const remedy = advisesUnseen ? advice : unseenAdvice
  return { findings: [{ about: name, level: 'fault', says, remedy, figures: {} }], failure }
}

function findingOf(
  { name, bound, severity, advice }: Check<never>,
  { says, state, figures = {}, ...own }: Found,
): Finding {
  const level =
    state === 'fine' ? 'ok' : state === 'wrong' ? (own.severity ?? severity) : levelOf(state.value, bound)
  return { about: name, level, says, remedy: level === 'ok' ? null : (own.advice ?? advice), figures }
}

const levelOf = (value: number, bound: Check<never>['bound']): Level => {
  if (value > (bound?.fault ?? Number.POSITIVE_INFINITY)) return 'fault'
  return value > (bound?.warning ?? Number.POSITIVE_INFINITY) ? 'warning' : 'ok'
}

/** The level of the worst finding. */
export const worstOf = (findings: readonly Pick<Finding, 'level'>[]): Level =>
  (['fault', 'warning'] as const).find((level) => findings.some((one) => one.level === level)) ?? 'ok'

/** Messages from other software can be a page long. */
const reasonCharsMax = 400

/** The reason for a failure, in one line. If a host has several addresses, only the inner errors, one for each address, have messages. */
export function reasonOf(error: unknown): string {
  const first = error instanceof AggregateError && error.message === '' ? error.errors[0] : error
  const text = first instanceof Error ? first.message || first.name : String(first)
  return (text.split('\n', 1)[0] ?? '').slice(0, reasonCharsMax)
}

/** A duration for a person, such as "3 min". */
export function durationText(ms: number): string {
  const seconds = Math.round(Math.abs(ms) / 1_000)
  if (seconds < 1) return `${Math.round(Math.abs(ms))} ms`
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} days`
}
