import type { FastifyInstance } from 'fastify'
import { declarations } from '../administration/declarations.ts'
import { mayDo } from '../administration/roles.ts'
import { hrefOf } from './declared.ts'
import { accountAt, type Dashboard, type OrganizationParams, sendPage, viewerOf } from './page.ts'
import { commandsPage } from './pages/commands.ts'

/** The list of all commands and queries, and the list of the commands and queries for one organization. */
export const commandRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/commands', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const usable = declarations
      .filter(({ action }) => mayDo(viewer.role, action))
      .map((declared) => ({ declared, href: hrefOf(declared, { ...viewer, organizationId: null }) }))
    return sendPage(reply, commandsPage({ viewer, account: null, usable }))
  })
  pages.get<OrganizationParams>('/organizations/:organization/commands', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const account = await accountAt(context, request.params.organization)
    const usable = declarations
      .filter(({ fields }) => fields.some(({ control }) => control === 'organization'))
      .map((declared) => ({
        ...{ declared },
        href: hrefOf(declared, { ...viewer, organizationId: account.organization_id }),
      }))
      .filter(({ href }) => href !== null)
    return sendPage(reply, commandsPage({ viewer, account, usable }))
  })
}
