import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Standing } from '../administration/users.ts'
import { nextOf } from './next.ts'

/**
 * A password that the system made was seen by someone else, or was printed: it opens nothing but the form that replaces it. A sign-out
 * is no page of a person, and is always there.
 */

/** A form that was sent before the person chose a password. */
export class PasswordNotChosen extends Error {
  override name = 'PasswordNotChosen'
}

const opened = ['GET /me', 'HEAD /me', 'POST /me/password']

/**
 * Undefined: the request may go on. Otherwise it was led to the form, with the page that was asked for. Throws `PasswordNotChosen`
 * for any other form.
 */
export const chooseFirst = (
  { passwordGiven }: Extract<Standing, { kind: 'acts' }>,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply | undefined => {
  const { method, url, session } = request
  // Who came another way did not use it, and may not even know it.
  if (
    !passwordGiven ||
    session.byProvider === true ||
    opened.includes(`${method} ${request.routeOptions.url}`)
  )
    return undefined
  if (method !== 'GET' && method !== 'HEAD') throw new PasswordNotChosen()
  return reply.redirect(withNext('/me', nextOf(url)), 303)
}

/** An address of ours, and the page to go on to from there. */
export const withNext = (path: '/me' | '/login' | '/login/code', next: string): string =>
  next === '/' ? path : `${path}?next=${encodeURIComponent(next)}`
