import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Standing } from '../administration/users/users.ts'
import type { UserRole } from '../events/users.ts'
import type { Dashboard } from './page.ts'

/**
 * If the operator requires a second factor (`DASHBOARD_SECOND_FACTOR`), a person without one can open only the form that sets it up.
 * Sign-ins with an identity provider are exempt.
 */

export type RequiredFactor = 'optional' | 'admins' | 'all'

/** Thrown for a form that was sent before the user set up a required second factor. */
export class SecondFactorNotSet extends Error {
  override name = 'SecondFactorNotSet'
}

const setUpPath = '/me/second-factor'
/** A generated password must be replaced first, on the user's own page. */
const opened = [
  'GET /me',
  'HEAD /me',
  'POST /me/password',
  `GET ${setUpPath}`,
  `HEAD ${setUpPath}`,
  `POST ${setUpPath}`,
]

export const factorIsRequired = (required: RequiredFactor, role: UserRole): boolean =>
  required === 'all' || (required === 'admins' && role === 'admin')

/**
 * Redirects a page to the form that sets up a second factor; undefined if the request may continue. Throws `SecondFactorNotSet` for any other
 * form.
 */
export const setUpFirst = async (
  { requiredFactor, users }: Dashboard,
  { user, role }: Extract<Standing, { kind: 'acts' }>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply | undefined> => {
  const { method, session } = request
  if (
    !factorIsRequired(requiredFactor, role) ||
    session.byProvider === true ||
    opened.includes(`${method} ${request.routeOptions.url}`) ||
    (await users.secondFactor(user)) !== null
  )
    return undefined
  if (method !== 'GET' && method !== 'HEAD') throw new SecondFactorNotSet()
  return reply.redirect(setUpPath, 303)
}
