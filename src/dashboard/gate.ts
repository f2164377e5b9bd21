import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Action, mayDo, rolesThatMay } from '../administration/roles.ts'
import type { Standing } from '../administration/users.ts'
import { nextOf } from './next.ts'
import { type Dashboard, type OrganizationParams, PageMissing } from './page.ts'

/**
 * Who may open a page and send a form: asked anew at every request, of the event log. A user who was disabled has no session
 * from then on, and one whose role changed has the new one at the next page.
 */

type Acting = Extract<Standing, { kind: 'acts' }>

declare module 'fastify' {
  interface FastifyRequest {
    /** Who asks, and what that person may do; null before the gate. */
    standing: Acting | null
  }
}

/** The page is there, and the person's role does not permit it. `message` says whose it is. */
export class RoleForbids extends Error {
  override name = 'RoleForbids'
}

/** Which action of the table of roles each form is, and each page that is another one than its place says. */
const actionOfRoute: Readonly<Record<string, Action>> = {
  'GET /prices': 'accounts.read',
  'GET /organizations/:organization/keys/new': 'keys.change',
  'POST /organizations/:organization/keys/new': 'keys.change',
  'POST /organizations/:organization/keys/:key/limits': 'keys.change',
  'GET /organizations/:organization/keys/:key/rotate': 'keys.change',
  'POST /organizations/:organization/keys/:key/rotate': 'keys.change',
  'GET /organizations/:organization/keys/:key/revoke': 'keys.change',
  'POST /organizations/:organization/keys/:key/revoke': 'keys.change',
  'POST /organizations/:organization/months/:month/close': 'ledgers.change',
  'GET /organizations/:organization/lots/:grant/void': 'credits.change',
  'POST /organizations/:organization/lots/:grant/void': 'credits.change',
  'GET /organizations/:organization/calls/:request/refund': 'credits.change',
  'POST /organizations/:organization/calls/:request/refund': 'credits.change',
  'POST /organizations/:organization/calls/:request/refund/confirmed': 'credits.change',
  // What goes on behind a page is shown to the person alone who opened it.
  'GET /waiting/:work': 'accounts.read',
  'GET /waiting/:work/progress': 'accounts.read',
  'POST /prices/:proposal/approve': 'prices.change',
  'GET /prices/new': 'prices.change',
  'POST /prices/new': 'prices.change',
  'GET /prices/:name/withdraw': 'prices.change',
  'POST /prices/:name/withdraw': 'prices.change',
  'POST /organizations/:organization/prices': 'prices.change',
  'POST /organizations/:organization/prices/withdraw': 'prices.change',
  'GET /rerates/new': 'rerates.change',
  'POST /rerates/new': 'rerates.change',
  'POST /rerates/:run/approve': 'rerates.change',
  'POST /rerates/:run/abandon': 'rerates.change',
  'POST /rerates/:run/apply': 'rerates.change',
  'POST /reconcile': 'ledgers.change',
}

const ofOrganization = '/organizations/:organization'

/** For `onRoute`: throws for a form of which no one has said who may send it. */
export const named = ({ method, url }: { method: string | readonly string[]; url: string }): void => {
  for (const one of [method].flat())
    if (one !== 'GET' && one !== 'HEAD' && actionOfRoute[`${one} ${url}`] === undefined)
      throw new Error(`${one} ${url}: the table of gate.ts does not say who may send it`)
}

/** A page that is not named shows an organization, or what is not a partner's. */
const actionOf = (method: string, path: string): Action => {
  const named = actionOfRoute[`${method} ${path}`]
  if (named !== undefined) return named
  if (method !== 'GET') return 'installation.change'
  return path === ofOrganization || path.startsWith(`${ofOrganization}/`) ? 'accounts.read' : 'finance.read'
}

/** An organization and its test ledger have the same ULID. */
const isOwn = (asked: string, own: string): boolean =>
  asked === own || asked === own.replace(/^org_/, 'org_test_')

/** For `onRequest` of everything that needs a person. Throws `RoleForbids`, and `PageMissing` for what is another partner's. */
export const gate =
  ({ users }: Dashboard) =>
  async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const { user } = request.session
    const standing = user === undefined ? null : await users.standing(user)
    if (standing?.kind !== 'acts') {
      if (user !== undefined) await request.session.destroy()
      const next = nextOf(request.url)
      return reply.redirect(next === '/' ? '/login' : `/login?next=${encodeURIComponent(next)}`, 303)
    }
    request.standing = standing
    const { role, organizationId: own } = standing
    const path = request.routeOptions.url ?? ''
    if (own !== null) {
      const { organization } = request.params as Partial<OrganizationParams['Params']>
      if (path === '/') return reply.redirect(`/organizations/${own}`, 303)
      // Whether there is such an organization is not a partner's to know.
      if (organization !== undefined && !isOwn(organization, own)) throw new PageMissing()
    }
    const action = actionOf(request.method === 'HEAD' ? 'GET' : request.method, path)
    if (!mayDo(role, action))
      throw new RoleForbids(`You are signed in as ${role}. This is for ${rolesThatMay(action)}.`)
    return undefined
  }
