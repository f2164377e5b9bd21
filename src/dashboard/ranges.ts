import { InputFault } from '../administration/input.ts'
import type { Form } from './form.ts'

/** The time range in the URL of a page. Pure. */

export const rangeNames = ['15m', '1h', 'today', '24h', '7d', '30d', 'month', 'custom'] as const
type RangeName = (typeof rangeNames)[number]

export const rangeLabels: Readonly<Record<RangeName, string>> = {
  '15m': 'Last 15 minutes',
  '1h': 'Last hour',
  today: 'Today (UTC)',
  '24h': 'Last 24 hours',
  '7d': 'Last 7 days',
  '30d': 'Last 30 days',
  month: 'This month',
  custom: 'Custom',
}

/** The distance between the points of a chart. Minutes are stored for two days, and hours for 90 days. */
export type Step = 'minute' | 'hour' | 'day'
export const stepMs: Readonly<Record<Step, number>> = { minute: 60_000, hour: 3_600_000, day: 86_400_000 }

export type Range = {
  readonly name: RangeName
  readonly step: Step
  /** Both instants are beginnings of steps; the end is exclusive. */
  readonly fromMs: number
  readonly untilMs: number
}

const { minute: minuteMs, hour: hourMs, day: dayMs } = stepMs
const daysMax = 366
const spans: Readonly<Record<Exclude<RangeName, 'today' | 'month' | 'custom'>, readonly [Step, number]>> = {
  '15m': ['minute', 15 * minuteMs],
  '1h': ['minute', hourMs],
  '24h': ['hour', dayMs],
  '7d': ['hour', 7 * dayMs],
  '30d': ['day', 30 * dayMs],
}

const floor = (ms: number, step: Step): number => Math.floor(ms / stepMs[step]) * stepMs[step]
/** The end of the step that contains an instant. */
const endOf = (ms: number, step: Step): number => floor(ms, step) + stepMs[step]

const lasting = (name: keyof typeof spans, nowMs: number): Range => {
  const [step, spanMs] = spans[name]
  const untilMs = endOf(nowMs, step)
  return { name, step, fromMs: untilMs - spanMs, untilMs }
}

const todayOf = (nowMs: number): Range => ({
  name: 'today',
  step: 'hour',
  fromMs: floor(nowMs, 'day'),
  untilMs: endOf(nowMs, 'hour'),
})

const monthOf = (nowMs: number): Range => ({
  name: 'month',
  step: 'day',
  fromMs: Date.parse(`${new Date(nowMs).toISOString().slice(0, 7)}-01`),
  untilMs: endOf(nowMs, 'day'),
})

const customOf = (fromMs: number, untilMs: number, nowMs: number): Range => {
  const spanMs = untilMs - fromMs
  let step: Step = 'day'
  if (spanMs <= 3 * hourMs && nowMs - fromMs < 2 * dayMs) step = 'minute'
  else if (spanMs <= 8 * dayMs && nowMs - fromMs < 90 * dayMs) step = 'hour'
  const end = floor(untilMs, step)
  return {
    name: 'custom',
    step,
    fromMs: floor(fromMs, step),
    untilMs: end < untilMs ? end + stepMs[step] : end,
  }
}

/** The shortest range of at least a day that contains calls. `newestMs` is the time of the newest call; null if there are no calls. */
const defaultRange = (newestMs: number | null, nowMs: number): Range => {
  const ranges = (['24h', '7d', '30d'] as const).map((name) => lasting(name, nowMs))
  const [day = monthOf(nowMs)] = ranges
  if (newestMs === null) return day
  const until = endOf(newestMs, 'day')
  return ranges.find(({ fromMs }) => fromMs <= newestMs) ?? customOf(until - 30 * dayMs, until, nowMs)
}

/** Reads an instant such as 2026-11-27T12:00, or a day. A day at the end of a range is included. Throws `InputFault`. */
const instantIn = (form: Form, field: 'from' | 'to'): number => {
  const text = form.text(field)
  const isDay = /^\d{4}-\d\d-\d\d$/.test(text)
  const ms =
    isDay || /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)
      ? Date.parse(isDay ? text : `${text.slice(0, 16)}Z`)
      : Number.NaN
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(text.slice(0, 10)))
    throw new InputFault(field, `"${text}" is not a time such as 2026-11-21 or 2026-11-21T14:30`)
  return isDay && field === 'to' ? ms + dayMs : ms
}

/** The range in a URL. Throws `InputFault` if it is invalid. */
export const rangeIn = (
  form: Form,
  { nowMs, newestMs }: { readonly nowMs: number; readonly newestMs: number | null },
): Range => {
  const asked = form.text('range')
  const name = rangeNames.find((one) => one === asked) ?? (form.text('from') === '' ? null : 'custom')
  if (name === null) return defaultRange(newestMs, nowMs)
  if (name === 'today') return todayOf(nowMs)
  if (name === 'month') return monthOf(nowMs)
  if (name !== 'custom') return lasting(name, nowMs)
  const fromMs = instantIn(form, 'from')
  const untilMs = form.text('to') === '' ? nowMs : instantIn(form, 'to')
  if (untilMs <= fromMs) throw new InputFault('to', `${form.text('to')} is not after ${form.text('from')}`)
  const days = Math.ceil((untilMs - fromMs) / dayMs)
  if (days > daysMax)
    throw new InputFault('from', `a range can have at most ${daysMax} days, and this one has ${days}`)
  return customOf(fromMs, untilMs, nowMs)
}

/** The beginning of every step of a range, as an instant or a day. */
export const timesOf = ({ step, fromMs, untilMs }: Range): string[] => {
  const times: string[] = []
  for (let atMs = fromMs; atMs < untilMs; atMs += stepMs[step]) times.push(timeOf(atMs, step))
  return times
}

export const timeOf = (atMs: number, step: Step): string => {
  const iso = new Date(atMs).toISOString()
  return step === 'day' ? iso.slice(0, 10) : `${iso.slice(0, 19)}Z`
}

/** Extends a range to whole days, for values that exist only by day. */
export const inDays = (range: Range): Range =>
  range.step === 'day'
    ? range
    : { ...range, step: 'day', fromMs: floor(range.fromMs, 'day'), untilMs: endOf(range.untilMs - 1, 'day') }

/** The query parameters of a range. */
export const rangeQuery = ({ name, fromMs, untilMs }: Range): Record<string, string> =>
  name === 'custom' ? { range: name, from: inputTime(fromMs), to: inputTime(untilMs) } : { range: name }

/** The value for an input of the type datetime-local, in UTC. */
export const inputTime = (ms: number): string => new Date(ms).toISOString().slice(0, 16)
