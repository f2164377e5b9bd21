import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { callerAddress, isLoopback } from '../guard/caller-address.ts'

/**
 * Cookies are sent only over HTTPS or within this machine, unless the operator allows plain HTTP. Over HTTPS, their names begin with
 * `__Host-`, so that browsers do not accept them from a sibling host or over plain HTTP. Over plain HTTP, they begin with the port, because
 * browsers send cookies to every port of a host, and two dashboards on one machine would end each other's sessions.
 */

/** Thrown for a request over plain HTTP from another machine, because anyone on the network could take over the session. */
export class ConnectionInsecure extends Error {
  override name = 'ConnectionInsecure'
}

const prefixOf = ({ protocol, port }: FastifyRequest): string =>
  protocol === 'https' ? '__Host-' : port === null || port === 80 ? '' : `${port}-`

const forwardedHeaders = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'forwarded', 'via']
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

/** Whether the request never left this machine, according to the caller's address, the host name and the headers of proxies. */
export const staysHere = (request: FastifyRequest): boolean => {
  const proxied = (request.ips?.length ?? 0) > 1
  const passedOn = !proxied && forwardedHeaders.some((name) => request.headers[name] !== undefined)
  return isLoopback(callerAddress(request)) && !passedOn && loopbackHost.test(request.headers.host ?? '')
}

/** Must be registered between the cookie plugin and the plugins that use cookies. Refuses insecure requests with `ConnectionInsecure`. */
export const nameCookies = (
  pages: FastifyInstance,
  { names, insecure }: { names: readonly string[]; insecure: boolean },
): void => {
  pages.addHook('onRequest', async (request, reply) => {
    if (request.protocol !== 'https' && !insecure && !staysHere(request)) throw new ConnectionInsecure()
    prefixed(request, reply, names)
  })
}

const prefixed = (request: FastifyRequest, reply: FastifyReply, names: readonly string[]): void => {
  const prefix = prefixOf(request)
  // Ignores cookies without the prefix, because a sibling host, another port or a plain HTTP page could have set them.
  request.cookies = Object.fromEntries(
    names.flatMap((name) => {
      const value = request.cookies[`${prefix}${name}`]
      return value === undefined ? [] : [[name, value]]
    }),
  )
  const { setCookie, clearCookie } = reply
  const own = request.protocol === 'https' ? ({ secure: true, path: '/' } as const) : {}
  reply.setCookie = (name, value, options) =>
    setCookie.call(reply, `${prefix}${name}`, value, { ...options, ...own })
  reply.clearCookie = (name, options) => clearCookie.call(reply, `${prefix}${name}`, { ...options, ...own })
}
