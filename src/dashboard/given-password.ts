import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Standing } from '../administration/users/users.ts'
import { nextOf } from './next.ts'

/**
 * A generated password was seen by someone else, or was printed: it opens only the form that replaces it. Signing out
 * is not a person's page, and is always possible.
 */

/** A form that was sent before the person chose a password. */
export class PasswordNotChosen extends Error {
  override name = 'PasswordNotChosen'
}

const opened = ['GET /me', 'HEAD /me', 'POST /me/password']

/**
 * Undefined: the request may continue. Otherwise it was redirected to the form, with the requested page. Throws `PasswordNotChosen`
 * for any other form.
 */
export const chooseFirst = (
  { passwordGiven }: Extract<Standing, { kind: 'acts' }>,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply | undefined => {
  const { method, url, session } = request
  // A person who came another way did not use the password, and may not even know it.
  if (
    !passwordGiven ||
    session.byProvider === true ||
    opened.includes(`${method} ${request.routeOptions.url}`)
  )
    return undefined
  if (method !== 'GET' && method !== 'HEAD') throw new PasswordNotChosen()
  return reply.redirect(withNext('/me', nextOf(url)), 303)
}

/** One of our addresses, with the page to open afterwards. */
export const withNext = (path: '/me' | '/login' | '/login/code', next: string): string =>
  next === '/' ? path : `${path}?next=${encodeURIComponent(next)}`
