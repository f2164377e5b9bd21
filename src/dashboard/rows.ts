import type { FastifyInstance } from 'fastify'
import type { Position } from '../event-log/port.ts'
import { ledgerStream } from '../events/streams.ts'
import type { Dashboard, OrganizationParams } from './page.ts'
import type { Look, Positions } from './positions.ts'
import { readsOf } from './reads.ts'

/**
 * Whether the rows that a page shows are of now: asked once for every page, before it is made, and told above it. What a page reads
 * from the event log itself is never late.
 */

/** A projection whose rows a page shows and which is not where the event log ends. */
export type LateRows = {
  readonly name: string
  /** `stream`: only the rows of this organization have stopped. */
  readonly state: 'behind' | 'halted' | 'stream'
  /** In the log's positions. */
  readonly behind: Position
  /** At least; 0 where it is not known. */
  readonly behindMs: number
  readonly position: Position
  /** When the last event that its rows show was recorded; null where that is not known. */
  readonly asOfMs: number | null
}

export type RowsState =
  | { readonly kind: 'current' }
  /** Log or database did not answer. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'late'; readonly late: readonly LateRows[] }

declare module 'fastify' {
  interface FastifyRequest {
    /** How old the rows are that the page shows; null where it shows none. */
    rows: RowsState | null
  }
}

/** For the pages of people who are signed in: says of every request how old its rows are. */
export const tellRows = (
  pages: FastifyInstance,
  { positions, lateAfterMs }: Pick<Dashboard, 'positions' | 'lateAfterMs'>,
): void => {
  pages.decorateRequest('rows', null)
  pages.addHook<OrganizationParams>('preHandler', async (request) => {
    const names = readsOf(request.routeOptions.url ?? '') ?? []
    if (names.length === 0) return
    const look = await positions.now()
    if (look === null) {
      request.rows = { kind: 'unknown' }
      return
    }
    const found = lateOf(look, positions, { names, organizationId: request.params.organization, lateAfterMs })
    const late: LateRows[] = []
    for (const one of found) late.push({ ...one, asOfMs: await positions.recordedAtMs(one.position) })
    request.rows = late.length === 0 ? { kind: 'current' } : { kind: 'late', late }
  })
}

type Asked = {
  readonly names: readonly string[]
  readonly organizationId: string | undefined
  readonly lateAfterMs: number
}

const lateOf = (
  look: Look,
  positions: Pick<Positions, 'behindMs'>,
  { names, organizationId, lateAfterMs }: Asked,
): Omit<LateRows, 'asOfMs'>[] =>
  look.checkpoints.flatMap(({ name, state, position }): Omit<LateRows, 'asOfMs'>[] => {
    if (!names.includes(name)) return []
    const behindMs = positions.behindMs(position, look)
    const behind = position < look.head ? look.head - position : 0n
    if (state === 'halted') return [{ name, state, behind, behindMs, position }]
    if (behindMs > lateAfterMs) return [{ name, state: 'behind', behind, behindMs, position }]
    const stopped = look.haltedStreams.find(
      (one) =>
        one.projection === name &&
        organizationId !== undefined &&
        one.stream === ledgerStream(organizationId),
    )
    if (stopped === undefined) return []
    return [
      {
        name,
        state: 'stream',
        behind: look.head - stopped.position,
        behindMs: 0,
        position: stopped.position,
      },
    ]
  })
