import type { Position } from '../event-log/port.ts'
import type { Sample } from './positions.ts'

/** What was looked at every few seconds, by the minute, for plots and their tables. Pure. */

export type ByMinute = {
  readonly groups: readonly string[]
  readonly points: readonly { readonly at: string; readonly values: readonly number[] }[]
}

const minuteMs = 60_000
/** A plot has seven colours. */
const namedMax = 5

/** The lag of each minute is the most that was seen in it; its rate, what was gone from the last look before it to its own last one. */
export const byMinute = (
  samples: readonly Sample[],
): { readonly lag: ByMinute; readonly rate: ByMinute; readonly minutes: readonly string[] } => {
  const found = minutesOf(samples)
  const names = namesOf(samples)
  const [named, others] = [names.slice(0, namedMax), names.slice(namedMax)]
  const rest = (how: string): string[] =>
    others.length === 0
      ? []
      : [others.length === 1 ? String(others[0]) : `${others.length} others, the ${how}`]
  const value = (of: (name: string) => number, most: typeof Math.max): number[] => [
    ...named.map(of),
    ...(others.length === 0 ? [] : [most(...others.map(of))]),
  ]
  const point = (minute: Minute, values: readonly number[]) => ({ at: minute.at, values })
  return {
    minutes: found.map(({ at }) => at),
    lag: {
      groups: [...named, ...rest('most')],
      points: found.map((minute) =>
        point(
          minute,
          value((name) => lagIn(minute, name), Math.max),
        ),
      ),
    },
    rate: {
      groups: ['event log', ...named, ...rest('slowest')],
      points: found.map((minute) =>
        point(minute, [
          rateOf(minute, ({ head }) => head),
          ...value((name) => rateOf(minute, ({ positions }) => positions.get(name) ?? 0n), Math.min),
        ]),
      ),
    },
  }
}

type Minute = {
  readonly at: string
  readonly samples: readonly Sample[]
  /** The last one before the minute; the minute's first one where there is none. */
  readonly before: Sample
}

const minutesOf = (samples: readonly Sample[]): readonly Minute[] => {
  const minutes: (Minute & { samples: Sample[] })[] = []
  let previous: Sample | null = null
  for (const sample of samples) {
    const at = new Date(Math.floor(sample.atMs / minuteMs) * minuteMs).toISOString()
    const last = minutes.at(-1)
    if (last?.at === at) last.samples.push(sample)
    else minutes.push({ at, samples: [sample], before: previous ?? sample })
    previous = sample
  }
  return minutes
}

const behind = ({ head, positions }: Sample, name: string): number => {
  const position = positions.get(name) ?? head
  return position < head ? Number(head - position) : 0
}

const lagIn = ({ samples }: Minute, name: string): number =>
  Math.max(0, ...samples.map((sample) => behind(sample, name)))

/** Those that were the most behind first. */
const namesOf = (samples: readonly Sample[]): readonly string[] => {
  const most = new Map<string, number>()
  for (const sample of samples)
    for (const name of sample.positions.keys())
      most.set(name, Math.max(most.get(name) ?? 0, behind(sample, name)))
  return [...most].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([name]) => name)
}

/** Rows that were put back are no rate. */
const rateOf = ({ samples, before }: Minute, of: (sample: Sample) => Position): number => {
  const last = samples.at(-1) ?? before
  const ms = last.atMs - before.atMs
  const moved = of(last) - of(before)
  return ms <= 0 || moved <= 0n ? 0 : Math.round((Number(moved) * 1_000) / ms)
}
