import type { FastifyInstance } from 'fastify'
import { amountOf, labelOf } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { createOrganization } from '../administration/organizations/organizations.ts'
import { formOf } from './form.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from './page.ts'
import { newOrganizationPage, organizationRegisteredPage } from './pages/new-organization.ts'
import { accountOf, rowsOf } from './queries.ts'
import { shownSoon } from './shown-soon.ts'

/** Registering an organization. */

const path = '/organizations/new'

export const organizationRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  pages.get(path, (request, reply) => {
    const typed = formOf({ 'overdraft-limit': '0' })
    return sendPage(reply, newOrganizationPage({ viewer: viewerOf(request, reply), typed, fault: null }))
  })

  pages.post(path, async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) => {
      const name = labelOf('name', form.text('name'))
      const overdraftLimit = amountOf('overdraft-limit', form.text('overdraft-limit').trim(), { zero: true })
      const registered = { name, overdraftLimit, ...provedOperator(viewer.user) }
      return { name, ...(await createOrganization(foundation, registered)) }
    })
    if ('fault' in outcome) {
      const typed = formOf(request.body)
      return sendPage(reply.code(422), newOrganizationPage({ viewer, typed, fault: outcome.fault }))
    }
    const { organizationId, name } = outcome.done
    await shownSoon(context, ['accounts'])
    const [shown] = await rowsOf(foundation.pool, accountOf(organizationId, Date.now()))
    if (shown === undefined)
      return sendPage(reply, organizationRegisteredPage({ viewer, organizationId, name }))
    return reply.redirect(`/organizations/${organizationId}`, 303)
  })
}
