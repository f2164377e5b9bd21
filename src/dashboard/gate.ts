import type { FastifyReply, FastifyRequest } from 'fastify'
import { mayDo, rolesThatMay } from '../administration/roles.ts'
import type { Standing } from '../administration/users/users.ts'
import { actionAt } from './access.ts'
import { chooseFirst, withNext } from './given-password.ts'
import { nextOf } from './next.ts'
import { type Dashboard, type OrganizationParams, PageMissing } from './page.ts'
import { setUpFirst } from './required-factor.ts'

/**
 * The right to open a page and to send a form is checked at every request, in the event log. A disabled user loses the session
 * immediately, and a user with a changed role has the new role at the next page.
 */

type Acting = Extract<Standing, { kind: 'acts' }>

declare module 'fastify' {
  interface FastifyRequest {
    /** The person and their rights; null before the gate. */
    standing: Acting | null
    /** The address of the documentation for partners, on the host that answers calls; null if this process does not know it. */
    docsUrl: string | null
  }
}

/** The page exists, but the person's role does not permit it. `message` says whose page it is. */
export class RoleForbids extends Error {
  override name = 'RoleForbids'
}

/** For `onRoute`: throws for a page that is missing in the table of access. */
export const named = ({ method, url }: { method: string | readonly string[]; url: string }): void => {
  for (const one of [method].flat())
    if (actionAt(one, url) === null)
      throw new Error(`${one} ${url}: the table of access.ts does not say who may open it`)
}

/** An organization and its test ledger have the same ULID. */
const isOwn = (asked: string, own: string): boolean =>
  asked === own || asked === own.replace(/^org_/, 'org_test_')

/** For `onRequest` of everything that needs a person. Throws `RoleForbids`, and `PageMissing` for another partner's pages. */
export const gate =
  (context: Dashboard) =>
  async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const { user } = request.session
    const standing = user === undefined ? null : await context.users.standing(user)
    if (standing?.kind !== 'acts') {
      if (user !== undefined) await request.session.destroy()
      return reply.redirect(withNext('/login', nextOf(request.url)), 303)
    }
    request.standing = standing
    const led = chooseFirst(context.settings, standing, request, reply)
    if (led !== undefined) return led
    const ledToFactor = await setUpFirst(context, standing, request, reply)
    if (ledToFactor !== undefined) return ledToFactor
    const { role, organizationId: own } = standing
    const path = request.routeOptions.url ?? ''
    if (own !== null) {
      const { organization } = request.params as Partial<OrganizationParams['Params']>
      if (path === '/') return reply.redirect(`/organizations/${own}`, 303)
      // A partner must not learn whether that organization exists.
      if (organization !== undefined && !isOwn(organization, own)) throw new PageMissing()
    }
    const action = actionAt(request.method, path)
    if (action === null) throw new PageMissing()
    if (!mayDo(role, action))
      throw new RoleForbids(`You are signed in as ${role}. This is for ${rolesThatMay(action)}.`)
    // Outside the pages of an organization, a command is about all of them.
    if (own !== null && path.startsWith('/commands/'))
      throw new RoleForbids(
        `You are signed in as ${role}. This command applies to all organizations, and you may act only for your own.`,
      )
    return undefined
  }
