import type { FastifyInstance } from 'fastify'
import type { ProjectionLag } from '../administration/projections/projections.ts'
import { ledgerStream } from '../events/streams.ts'
import type { Dashboard, OrganizationParams } from './page.ts'

/** Determines whether all rows that pages can show are current. */

/** A projection that is behind the event log. */
export type LateRows = Pick<ProjectionLag, 'name' | 'behind' | 'seconds'> & {
  /** `stream`: only the rows of this organization are no longer updated. */
  readonly state: 'behind' | 'halted' | 'stream'
}

export type RowsState =
  | { readonly kind: 'current' }
  /** The event log or the database did not answer. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'late'; readonly late: readonly LateRows[] }

declare module 'fastify' {
  interface FastifyRequest {
    /** Null before `setRows` has run. */
    rows: RowsState | null
  }
}

/** Sets `rows` of every request before its page is rendered. */
export const setRows = (
  pages: FastifyInstance,
  { health, lateAfterMs }: Pick<Dashboard, 'health' | 'lateAfterMs'>,
): void => {
  pages.decorateRequest('rows', null)
  pages.addHook<OrganizationParams>('preHandler', async (request) => {
    const lags = await health.projectionLags()
    if (lags === null) {
      request.rows = { kind: 'unknown' }
      return
    }
    const { organization } = request.params
    const late = lags.flatMap((lag): LateRows[] => {
      const state = stateOf(lag, { organization, lateAfterMs })
      return state === null ? [] : [{ ...lag, state }]
    })
    request.rows = late.length === 0 ? { kind: 'current' } : { kind: 'late', late }
  })
}

const stateOf = (
  { state, seconds, haltedStreams }: ProjectionLag,
  { organization, lateAfterMs }: { readonly organization: string | undefined; readonly lateAfterMs: number },
): LateRows['state'] | null => {
  if (state === 'halted') return 'halted'
  if (seconds * 1_000 > lateAfterMs) return 'behind'
  const stopped = haltedStreams.some(({ stream }) => stream === ledgerStream(organization ?? ''))
  return organization !== undefined && stopped ? 'stream' : null
}
