import type { FastifyReply, FastifyRequest } from 'fastify'
import { createAttempts } from '../administration/attempts.ts'
import { mayDo, rolesThatMay } from '../administration/roles.ts'
import type { Standing } from '../administration/users/users.ts'
import { actionAt } from './access.ts'
import { chooseFirst, withNext } from './given-password.ts'
import { nextOf } from './next.ts'
import { type Dashboard, type OrganizationParams, PageMissing } from './page.ts'
import { setUpFirst } from './required-factor.ts'

/** Checks a user's rights in the event log for every request, so that a disabled user or a changed role takes effect immediately. */

type Acting = Extract<Standing, { kind: 'acts' }>

declare module 'fastify' {
  interface FastifyRequest {
    /** The signed-in user; null before `gate` has run. */
    standing: Acting | null
    /** The URL of the documentation for partners; null if it is not known in this process. */
    docsUrl: string | null
  }
}

/** Thrown for a page that the user's role does not permit. `message` names the roles that do. */
export class RoleForbids extends Error {
  override name = 'RoleForbids'
}

/** Thrown if a partner has sent too many forms. */
export class TooManyForms extends Error {
  override name = 'TooManyForms'
}

/** Most forms of partners are recorded in streams that are read at every change to users, so these streams must not grow without bound. */
const partnerFormsPerMinute = 60

/** An `onRoute` hook that throws if the table in access.ts does not have the route. */
export const named = ({ method, url }: { method: string | readonly string[]; url: string }): void => {
  for (const one of [method].flat())
    if (actionAt(one, url) === null)
      throw new Error(`${one} ${url}: the table in access.ts does not name the action that it requires`)
}

/** An organization and its test ledger have the same ULID. */
const isOwn = (asked: string, own: string): boolean =>
  asked === own || asked === own.replace(/^org_/, 'org_test_')

/** An `onRequest` hook for signed-in users. Throws `RoleForbids`, or `PageMissing` for another partner's pages. */
export const gate = (context: Dashboard) => {
  const forms = createAttempts(context.foundation, { what: 'partner', perMinute: partnerFormsPerMinute })
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const { user } = request.session
    const standing = user === undefined ? null : await context.users.standing(user)
    if (standing?.kind !== 'acts') {
      if (user !== undefined) await request.session.destroy()
      const unsent = request.method !== 'GET' && request.method !== 'HEAD'
      return reply.redirect(withNext('/login', nextOf(request.url), unsent ? { unsent: 'yes' } : {}), 303)
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
      // The answer must not reveal to a partner whether that organization exists.
      if (organization !== undefined && !isOwn(organization, own)) throw new PageMissing()
    }
    const action = actionAt(request.method, path)
    if (action === null) throw new PageMissing()
    if (!mayDo(role, action))
      throw new RoleForbids(
        `You are signed in with the role ${role}, but this requires the role ${rolesThatMay(action)}.`,
      )
    if (own !== null && path.startsWith('/commands/'))
      throw new RoleForbids(
        `You are signed in with the role ${role}. This command applies to all organizations, but you can act only for your own.`,
      )
    // Searches do not count, because they are sent while the person types and are not recorded.
    const waitSeconds =
      own !== null && request.method === 'POST' && !path.startsWith('/search')
        ? await forms(standing.user)
        : null
    if (waitSeconds !== null) {
      reply.header('retry-after', waitSeconds)
      throw new TooManyForms(`You have sent too many forms. Try again in ${waitSeconds} s.`)
    }
    return undefined
  }
}
