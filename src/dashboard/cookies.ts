import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { callerAddress, isLoopback } from '../guard/caller-address.ts'

/**
 * Cookies go over HTTPS, or stay on this machine. Over HTTPS each is `Secure` and its name begins with `__Host-`: the
 * browser then takes it from this very host only, never from a sibling or from a page sent in the clear.
 */

/** Over plain HTTP, from another machine: anyone who listens in between would be signed in as well. */
export class ConnectionInsecure extends Error {
  override name = 'ConnectionInsecure'
}

const hostPrefix = '__Host-'
const forwardedHeaders = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded', 'via']
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

/**
 * Plain HTTP that never leaves this machine, as far as can be told: the caller is here, the browser was told to come
 * here, and no proxy that we do not trust has passed it on.
 */
const staysHere = (request: FastifyRequest): boolean => {
  const proxied = (request.ips?.length ?? 0) > 1
  const passedOn = !proxied && forwardedHeaders.some((name) => request.headers[name] !== undefined)
  return isLoopback(callerAddress(request)) && !passedOn && loopbackHost.test(request.headers.host ?? '')
}

/**
 * Names the cookies of every page by how it was asked for: to be registered between the cookies' plugin and what
 * uses them. Throws `ConnectionInsecure` for pages that must not have any.
 */
export const nameCookies = (
  pages: FastifyInstance,
  { names, insecure }: { names: readonly string[]; insecure: boolean },
): void => {
  pages.addHook('onRequest', async (request, reply) => {
    if (request.protocol === 'https') return prefixed(request, reply, names)
    if (!insecure && !staysHere(request)) throw new ConnectionInsecure()
  })
}

const prefixed = (request: FastifyRequest, reply: FastifyReply, names: readonly string[]): void => {
  // What a sibling host or a page in the clear has set under the bare name is not looked at.
  request.cookies = Object.fromEntries(
    names.flatMap((name) => {
      const value = request.cookies[`${hostPrefix}${name}`]
      return value === undefined ? [] : [[name, value]]
    }),
  )
  const { setCookie, clearCookie } = reply
  const secure = { secure: true, path: '/' } as const
  reply.setCookie = (name, value, options) =>
    setCookie.call(reply, `${hostPrefix}${name}`, value, { ...options, ...secure })
  reply.clearCookie = (name, options) =>
    clearCookie.call(reply, `${hostPrefix}${name}`, { ...options, ...secure })
}
