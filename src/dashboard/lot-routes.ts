import type { FastifyInstance } from 'fastify'
import { voidGrant } from '../administration/credits/corrections.ts'
import { grantedLots } from '../administration/credits/lots.ts'
import { labelOf } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { formatCredits } from '../billing/money.ts'
import { formOf } from './form.ts'
import {
  accountAt,
  attemptOnce,
  type Dashboard,
  type OrganizationParams,
  PageMissing,
  sendPage,
  viewerOf,
} from './page.ts'
import { lotsPage, voidLotPage } from './pages/lots.ts'
import { lotsOf, rowsOf } from './queries.ts'
import { shownSoon } from './shown-soon.ts'

/** The lots of an organization, and the form that takes one back. */

const lotsMax = 200

type LotParams = { Params: { organization: string; grant: string } }

const grantPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

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

const lotAt = async (context: Dashboard, { organization, grant }: LotParams['Params']) => {
  const account = await accountAt(context, organization)
  const lot = grantPattern.test(grant)
    ? (await lotsAt(context, organization)).lots.find(({ grant_id }) => grant_id === grant)
    : undefined
  if (lot === undefined) throw new PageMissing()
  const { adjusted, balance } = await voidGrant(context.foundation, {
    organizationId: organization,
    grantId: grant,
    reason: 'preview',
    actor: 'preview',
    dryRun: true,
  })
  return { account, lot, taken: adjusted.amount, after: formatCredits(balance) }
}

export const lotRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/lots', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const view = await lotsAt(context, account.organization_id)
    return sendPage(reply, lotsPage({ viewer: viewerOf(request, reply), account, ...view }))
  })

  const path = '/organizations/:organization/lots/:grant/void'

  pages.get<LotParams>(path, async (request, reply) =>
    sendPage(
      reply,
      voidLotPage({
        viewer: viewerOf(request, reply),
        ...(await lotAt(context, request.params)),
        fault: null,
        reason: '',
      }),
    ),
  )

  pages.post<LotParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    if (!grantPattern.test(request.params.grant)) throw new PageMissing()
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      voidGrant(context.foundation, {
        organizationId: account.organization_id,
        grantId: request.params.grant,
        reason: labelOf('reason', form.text('reason')),
        dryRun: false,
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome)
      return sendPage(
        reply.code(422),
        voidLotPage({
          viewer,
          ...(await lotAt(context, request.params)),
          fault: outcome.fault,
          reason: formOf(request.body).text('reason'),
        }),
      )
    await shownSoon(context, ['accounts', 'ledger_lines'])
    return reply.redirect(`/organizations/${account.organization_id}/lots`, 303)
  })
}
