import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { PixelDayPlace } from '../../projections/pixel-days.ts'
import { pixelHits, searchedDomain } from '../administration/pixel/pixel-hits.ts'
import { type Form, formOf } from './form.ts'
import { accountAt, type Dashboard, type OrganizationParams, sendPage, viewerOf } from './page.ts'
import type { Viewer } from './pages/layout.ts'
import { type PixelView, pixelPage } from './pages/pixel.ts'
import { type AccountRow, rowsOf, usersOf } from './queries.ts'

/** The pixel of one organization: its rules, and its hits by day. */

const path = '/organizations/:organization/pixel'
const rulesShown = 50
const daysShown = 50

export const pixelRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const query = formOf(request.query)
    const viewer = viewerOf(request, reply)
    const usersSeen = await usersSeenBy(context, request)
    return sendPage(reply, await pageOf(context, account, { viewer, usersSeen, query }))
  })
}

/** A partner sees the names of its own organization's users, but not those of operators. */
const usersSeenBy = async (
  { foundation: { pool } }: Dashboard,
  { standing }: FastifyRequest,
): Promise<ReadonlySet<string> | null> => {
  if (standing?.role !== 'partner') return null
  const rows = await rowsOf(pool, usersOf(standing.organizationId ?? ''))
  return new Set(rows.map(({ name }) => name))
}

type Shown = {
  readonly viewer: Viewer
  readonly usersSeen: PixelView['usersSeen']
  readonly query: Form
}

const pageOf = async (
  { foundation: { pool }, pixel }: Dashboard,
  account: AccountRow,
  { query, ...shown }: Shown,
) => {
  const id = account.organization_id
  const atMs = Date.now()
  const [find, of] = [searchedDomain(query.text('find')), searchedDomain(query.text('of'))]
  const [rules, { sums: hits, days, until }] = await Promise.all([
    pixel.rules(id, { search: find, after: query.text('after'), max: rulesShown, atMs }),
    pixelHits(pool, id, {
      domain: of === '' ? null : of,
      after: placeIn(query.text('until')),
      max: daysShown,
      atMs,
    }),
  ])
  return pixelPage({
    ...shown,
    account,
    rules,
    find,
    of,
    hits,
    days,
    until: until === null ? null : `${until.day} ${until.domain}`,
  })
}

const placePattern = /^(\d{4}-\d{2}-\d{2}) ([a-z0-9.-]{0,253})$/

/** Null for an invalid position: then from the newest day on. */
const placeIn = (text: string): PixelDayPlace | null => {
  const [, day = '', domain = ''] = placePattern.exec(text) ?? []
  const atMs = Date.parse(`${day}T00:00:00.000Z`)
  // PostgreSQL refuses the 31st of June, which JavaScript reads as the 1st of July.
  return Number.isNaN(atMs) || new Date(atMs).toISOString().slice(0, 10) !== day ? null : { day, domain }
}
