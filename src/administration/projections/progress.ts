import type { Projection } from '../../../projections/projection.ts'
import type { RebuildProgress } from '../../projector/second-set.ts'
import type { Context } from '../declare.ts'

export const namesOf = (of: readonly Projection[]): string => of.map(({ name }) => name).join(', ')

export const rateOf = (events: number, elapsedMs: number): number =>
  elapsedMs === 0 ? 0 : Math.round((events * 1000) / elapsedMs)

/** The progress of a rebuild: position, share, rate, time left. */
export const reporter =
  (of: readonly Projection[], { progress }: Pick<Context, 'progress'>) =>
  ({ position: at, target, events, elapsedMs }: RebuildProgress): void => {
    const share = target === 0n ? 1 : Number(at) / Number(target)
    const seconds_left = share === 0 ? 0 : Math.ceil((elapsedMs / share - elapsedMs) / 1000)
    const events_per_second = rateOf(events, elapsedMs)
    progress(
      `${namesOf(of)}  position ${at} of ${target} (${Math.floor(share * 100)} %)  ${events_per_second} events/s  ${seconds_left} s left`,
      {
        projections: of.map(({ name }) => name),
        position: at.toString(),
        target: target.toString(),
        events,
        events_per_second,
        seconds_left,
      },
    )
  }
