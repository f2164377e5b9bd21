import type { FastifyInstance } from 'fastify'
import { grantedLots } from '../administration/credits/lots.ts'
import { accountAt, type Dashboard, type OrganizationParams, sendPage, viewerOf } from './page.ts'
import { lotsPage } from './pages/lots.ts'
import { lotsOf, rowsOf } from './queries.ts'

/** The lots of an organization. */

const lotsMax = 200

const lotsAt = async ({ foundation }: Dashboard, organizationId: string) => {
  const rows = await rowsOf(foundation.pool, lotsOf(organizationId, { max: lotsMax + 1, nowMs: Date.now() }))
  const lots = rows.slice(0, lotsMax)
  const opened = await grantedLots(
    foundation,
    organizationId,
    lots.map(({ grant_id }) => grant_id),
  )
  return {
    lots: lots.map((lot) => ({ ...lot, opened: opened.get(lot.grant_id) ?? null })),
    more: rows.length > lotsMax,
  }
}

export const lotRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/lots', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const view = await lotsAt(context, account.organization_id)
    return sendPage(reply, lotsPage({ viewer: viewerOf(request, reply), account, ...view }))
  })
}
