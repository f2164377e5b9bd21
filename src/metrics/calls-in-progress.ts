import type { Meters } from '../call/capability.ts'
import type { Overload } from '../call/overload.ts'

/** Measures the calls in progress, their limit, and the calls refused because of that limit. */
export const meterCalls = (
  { gauge, total }: Meters,
  overload: Pick<Overload, 'inProgress' | 'inProgressMax' | 'refused'>,
): void => {
  gauge({ name: 'calls_in_progress', help: 'Calls in progress' }, () => [{ value: overload.inProgress }])
  gauge(
    {
      name: 'calls_in_progress_max',
      help: 'Limit on calls in progress; it is lowered while the event loop is delayed',
    },
    () => [{ value: overload.inProgressMax }],
  )
  total({ name: 'calls_refused_busy_total', help: 'Calls refused because too many were in progress' }, () => [
    { value: overload.refused },
  ])
}
