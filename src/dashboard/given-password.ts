import type { FastifyReply, FastifyRequest } from 'fastify'
import { demoUser } from '../administration/seed.ts'
import type { Standing } from '../administration/users/users.ts'
import type { Config } from '../config.ts'
import { isLoopback } from '../guard/caller-address.ts'
import { staysHere } from './cookies.ts'
import { nextOf } from './next.ts'

/** Other people may have seen a generated password, so with such a password a user can only open the form that replaces it, or sign out. */

/** Thrown for a form that was sent before the user replaced a generated password. */
export class PasswordNotChosen extends Error {
  override name = 'PasswordNotChosen'
}

/** Whether these are the settings of the demo that `npm start` makes on one machine. All other settings count as production. */
export const isLocalDemo = (settings: Config): boolean =>
  settings.DATABASE_URL === undefined &&
  settings.EVENT_LOG_URL === undefined &&
  settings.DASHBOARD_URL === undefined &&
  settings.TRUSTED_PROXIES.length === 0 &&
  settings.INSECURE_COOKIES === '0' &&
  (settings.HOST === 'localhost' || isLoopback(settings.HOST))

/** Whether the request belongs to the local demo and never left this machine. */
export const isFromLocalDemo = (settings: Config, request: FastifyRequest): boolean =>
  isLocalDemo(settings) && staysHere(request)

/** Whether the user must replace a generated password. Only the demo's own password can stay, and only within the local demo. */
export const mustChoose = (
  settings: Config,
  request: FastifyRequest,
  { user, passwordGiven }: { readonly user: string; readonly passwordGiven: boolean },
): boolean =>
  // A person who signed in without the password may not know it.
  passwordGiven &&
  request.session.byProvider !== true &&
  !(user === demoUser && isFromLocalDemo(settings, request))

const opened = ['GET /me', 'HEAD /me', 'POST /me/password']

/** Redirects a page to the form for a new password; undefined if the request may continue. Throws `PasswordNotChosen` for any other form. */
export const chooseFirst = (
  settings: Config,
  standing: Extract<Standing, { kind: 'acts' }>,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply | undefined => {
  const { method, url } = request
  if (!mustChoose(settings, request, standing) || opened.includes(`${method} ${request.routeOptions.url}`))
    return undefined
  if (method !== 'GET' && method !== 'HEAD') throw new PasswordNotChosen()
  return reply.redirect(withNext('/me', nextOf(url)), 303)
}

/** A URL that contains the page to open afterwards. */
export const withNext = (
  path: '/me' | '/login' | '/login/code',
  next: string,
  more: Readonly<Record<string, string>> = {},
): string => {
  const query = new URLSearchParams({ ...(next === '/' ? {} : { next }), ...more }).toString()
  return query === '' ? path : `${path}?${query}`
}
