import { projections } from '../../projections/index.ts'
import type { Projection } from '../../projections/projection.ts'
import type { RebuildProgress } from '../projector/second-set.ts'
import { type CommandContext, type Given, UsageError } from './command.ts'

/** Projections as named on the command line, and how often progress is reported. */

const projectionNames = projections.map(({ name }) => name).join(', ')

const nameHelp = `one of ${projectionNames}`

export const projectionParameters = [
  { name: 'name', help: nameHelp },
  { name: 'all', help: 'every projection', kind: 'flag' },
] as const

export const projectionParameter = { name: 'name', help: nameHelp, required: true } as const

export const projectionNamed = (name: string): Projection => {
  const projection = projections.find((one) => one.name === name)
  if (projection === undefined)
    throw new UsageError(`there is no projection "${name}"; there are ${projectionNames}`)
  return projection
}

/** The named projections, or all of them if none is named. */
export const chosenProjections = (given: Given): readonly Projection[] => {
  const name = given.text('name')
  return name === undefined || given.flag('all') ? projections : [projectionNamed(name)]
}

/** Leaving out the name must not mean "all": that could take hours. */
export const chosenOrAll = (given: Given): readonly Projection[] => {
  if (given.text('name') === undefined && !given.flag('all'))
    throw new UsageError(`name a projection, or give --all; there are ${projectionNames}`)
  return chosenProjections(given)
}

export const namesOf = (chosen: readonly Projection[]): string => chosen.map(({ name }) => name).join(', ')

export const rateOf = (events: number, elapsedMs: number): number =>
  elapsedMs === 0 ? 0 : Math.round((events * 1000) / elapsedMs)

const jsonPauseMs = 500

/** On a terminal a line that is overwritten; with `--json` JSON lines on standard error, so that standard output holds only the answer. */
export const reporter = (
  chosen: readonly Projection[],
  { json, progress }: Pick<CommandContext, 'json' | 'progress'>,
): ((at: RebuildProgress) => void) => {
  let toldAtMs = 0
  return ({ position, target, events, elapsedMs }) => {
    const share = target === 0n ? 1 : Number(position) / Number(target)
    const leftS = share === 0 ? 0 : Math.ceil((elapsedMs / share - elapsedMs) / 1000)
    const perSecond = rateOf(events, elapsedMs)
    if (!json) {
      progress(
        `${namesOf(chosen)}  position ${position} of ${target} (${Math.floor(share * 100)} %)  ${perSecond} events/s  ${leftS} s left`,
      )
      return
    }
    if (elapsedMs - toldAtMs < jsonPauseMs) return
    toldAtMs = elapsedMs
    const line = {
      projections: chosen.map(({ name }) => name),
      position: position.toString(),
      target: target.toString(),
      events,
      events_per_second: perSecond,
      seconds_left: leftS,
    }
    process.stderr.write(`${JSON.stringify(line)}\n`)
  }
}
