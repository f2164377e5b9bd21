import type { FastifyInstance } from 'fastify'
import type { ProjectionLag, ProjectionState } from '../administration/projections/projections.ts'
import { ledgerStream } from '../events/streams.ts'
import type { Dashboard, OrganizationParams } from './page.ts'

/** Determines whether the rows on a page are current. Data that a page reads from the event log is never late. */

const organization = '/organizations/:organization'
const overview = ['accounts', 'ledger_index', 'usage_buckets']

/**
 * The projections whose rows are shown on the pages below a path. The first match counts. An empty list means that late rows cannot make a
 * figure wrong, for example because all figures come from the event log.
 */
const reads: readonly (readonly [below: string, names: readonly string[]])[] = [
  [`${organization}/usage`, ['accounts', 'ledger_index', 'usage_buckets']],
  [`${organization}/keys`, ['accounts', 'api_keys', 'key_usage', 'ledger_index']],
  [`${organization}/calls`, ['accounts', 'api_keys', 'ledger_lines', 'ledger_index']],
  [`${organization}/calls.csv`, ['accounts', 'ledger_lines']],
  [`${organization}/ledger/lines`, ['accounts', 'ledger_lines']],
  [`${organization}/ledger/months`, ['accounts', 'ledger_index']],
  [`${organization}/ledger/totals`, ['accounts']],
  [`${organization}/ledger/statement`, ['accounts']],
  [`${organization}/credits`, ['accounts']],
  [`${organization}/pixel`, ['accounts', 'pixel_days']],
  [`${organization}/pick`, ['api_keys']],
  [`${organization}/commands`, ['accounts']],
  [organization, ['accounts', 'api_keys', 'key_usage', 'ledger_index', 'ledger_lines', 'usage_buckets']],
  ['/organizations', []],
  ['/commands/org/list', ['accounts', 'api_keys', 'key_usage']],
  ['/usage', overview],
  ['/calls', ['accounts', 'api_keys', 'ledger_lines']],
  ['/calls.csv', ['accounts', 'ledger_lines']],
  ...['charges', 'charges.csv', 'day', 'day.csv'].map(
    (of) => [`/commands/ledger/${of}`, ['accounts', 'ledger_index', 'ledger_lines']] as const,
  ),
  ['/commands/audit', ['audit']],
  ['/commands/user', ['audit']],
  ['/search', ['accounts', 'api_keys', 'ledger_lines', 'audit']],
  ['/events', []],
  ['/commands', []],
  ['/pick', []],
  ['/operations', []],
  ['/first-call', overview],
  ['/me', []],
  ['/jobs', []],
]
/** The projections whose rows a page shows; null if the page is not listed in `reads`. */
export const readsOf = (url: string): readonly string[] | null =>
  url === '/'
    ? overview
    : (reads.find(([below]) => url === below || url.startsWith(`${below}/`))?.[1] ?? null)

/** A projection that is behind the event log, and whose rows the page shows. */
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
    /** Whether the rows on the page are current; null if the page shows no rows. */
    rows: RowsState | null
  }
}

/** Sets `rows` of every request before its page is rendered. */
export const tellRows = (
  pages: FastifyInstance,
  { health, lateAfterMs }: Pick<Dashboard, 'health' | 'lateAfterMs'>,
): void => {
  pages.decorateRequest('rows', null)
  pages.addHook<OrganizationParams>('preHandler', async (request) => {
    const names = readsOf(request.routeOptions.url ?? '') ?? []
    if (names.length === 0) return
    const lags = await health.projectionLags()
    if (lags === null) {
      request.rows = { kind: 'unknown' }
      return
    }
    const { organization } = request.params
    const late = lags.flatMap((lag): LateRows[] => {
      const state = names.includes(lag.name) ? stateOf(lag, { organization, lateAfterMs }) : null
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

/** `behindSeconds`: the age of the oldest event that the rows lack; null if unknown. */
export type StandingProjection = ProjectionState & { readonly behindSeconds: number | null }

export const standing = (
  states: readonly ProjectionState[],
  lags: readonly ProjectionLag[] | null,
): StandingProjection[] =>
  states.map((state) => ({
    ...state,
    behindSeconds: lags?.find(({ name }) => name === state.name)?.seconds ?? null,
  }))
