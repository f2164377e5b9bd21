import type { Meters } from '../call/capability.ts'
import type { Overload } from '../call/overload.ts'

/** Meters the calls in progress, their limit, and the calls that were refused because of it. */
export const meterCalls = (
  { gauge, total }: Meters,
  overload: Pick<Overload, 'inProgress' | 'inProgressMax' | 'refused'>,
): void => {
  gauge({ name: 'calls_in_progress', help: 'Calls in progress' }, () => [{ value: overload.inProgress }])
  gauge(
    {
      name: 'calls_in_progress_max',
      help: 'Limit of calls in progress; it falls while the process is late',
    },
    () => [{ value: overload.inProgressMax }],
  )
  total({ name: 'calls_refused_busy_total', help: 'Calls refused because too many were in progress' }, () => [
    { value: overload.refused },
  ])
}
