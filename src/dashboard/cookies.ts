import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { callerAddress, isLoopback } from '../guard/caller-address.ts'

/**
 * Cookies go over HTTPS, or stay on this machine. Over HTTPS each is `Secure` and its name begins with `__Host-`: the
 * browser then accepts it only from this host, never from a sibling host or over plain HTTP.
 */

/** Over plain HTTP, from another machine: anyone who listens on the network could take over the session. */
export class ConnectionInsecure extends Error {
  override name = 'ConnectionInsecure'
}

const hostPrefix = '__Host-'
const forwardedHeaders = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded', 'via']
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

/**
 * Plain HTTP that never leaves this machine, as far as can be determined: the caller is local, the browser used a local
 * address, and no untrusted proxy forwarded the request.
 */
export const staysHere = (request: FastifyRequest): boolean => {
  const proxied = (request.ips?.length ?? 0) > 1
  const passedOn = !proxied && forwardedHeaders.some((name) => request.headers[name] !== undefined)
  return isLoopback(callerAddress(request)) && !passedOn && loopbackHost.test(request.headers.host ?? '')
}

/**
 * Names the cookies of every page by how it was requested: register it between the cookies' plugin and the plugins that
 * use them. Throws `ConnectionInsecure` for pages that must not have any.
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
  // Cookies that a sibling host or a plain HTTP page has set under the bare name are ignored.
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
