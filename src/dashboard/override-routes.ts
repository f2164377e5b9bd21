import type { FastifyInstance } from 'fastify'
import { amountOf, instantOf, labelOf } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import {
  priceOverrides,
  setPriceOverride,
  withdrawPriceOverride,
} from '../administration/prices/price-overrides.ts'
import { pricesAt } from '../administration/prices/prices.ts'
import { formOf } from './form.ts'
import {
  accountAt,
  attemptOnce,
  type Dashboard,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { overridesPage } from './pages/overrides.ts'
import type { AccountRow } from './queries.ts'

/** An organization's own prices. */

const path = '/organizations/:organization/prices'

export const overrideRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  const page = async (
    account: AccountRow,
    { viewer, typed, fault }: { viewer: Viewer; typed: (name: string) => string; fault: FormFault | null },
  ) => {
    const [overrides, { inForce }] = await Promise.all([
      priceOverrides(foundation, account.organization_id),
      pricesAt(foundation, Date.now()),
    ])
    const skus = [...new Set((inForce?.rules ?? []).flatMap(({ sku }) => (sku === null ? [] : [sku])))].sort()
    return overridesPage({ viewer, account, overrides, skus, typed, fault })
  }

  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    return sendPage(reply, await page(account, { viewer, typed: () => '', fault: null }))
  })

  pages.post<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) => {
      const from = form.text('effective-from').trim()
      const amount = form.text('amount').trim()
      return setPriceOverride(foundation, {
        organizationId: account.organization_id,
        sku: form.text('sku'),
        amount: amount === '' ? null : amountOf('amount', amount, { zero: true }),
        effectiveFrom: from === '' ? new Date().toISOString() : instantOf('effective-from', from),
        reason: labelOf('reason', form.text('reason')),
        ...provedOperator(viewer.user),
      })
    })
    if ('done' in outcome) return reply.redirect(`/organizations/${account.organization_id}/prices`, 303)
    const typed = formOf(request.body).text
    return sendPage(reply.code(422), await page(account, { viewer, typed, fault: outcome.fault }))
  })

  pages.post<OrganizationParams>(`${path}/withdraw`, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) =>
      withdrawPriceOverride(foundation, {
        organizationId: account.organization_id,
        overrideId: form.text('override'),
        reason: labelOf('withdraw-reason', form.text('withdraw-reason')),
        ...provedOperator(viewer.user),
      }),
    )
    if ('done' in outcome) return reply.redirect(`/organizations/${account.organization_id}/prices`, 303)
    return sendPage(reply.code(422), await page(account, { viewer, typed: () => '', fault: outcome.fault }))
  })
}
