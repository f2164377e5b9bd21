import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import type { OpenRequests } from '../call/connections.ts'
import { lastCallsMs } from '../call/route.ts'
import { type Config, ConfigError } from '../config.ts'
import { defaultMetricsPort } from '../metrics/host.ts'

/** Where a host should listen. `variable` is the environment variable with the port, for error messages. */
export type Place = {
  readonly variable: 'API_PORT' | 'DASHBOARD_PORT' | 'METRICS_PORT'
  readonly address: string
  readonly port: number
}

/** Returns the URL of the host. Throws `ConfigError` if the port is taken or not allowed. */
export const listen = async (host: FastifyInstance, place: Place): Promise<string> => {
  const { address, port } = place
  try {
    await host.listen({ host: address, port })
  } catch (error) {
    throw listenFault(error, place)
  }
  const { port: bound } = host.server.address() as AddressInfo
  const named = address.includes(':') ? `[${address}]` : address
  return `${host.initialConfig.https ? 'https' : 'http'}://${named}:${bound}`
}

/** Returns a `ConfigError` if the value of the variable caused the error. Returns any other error unchanged. */
export const listenFault = (error: unknown, { variable, address, port }: Place): unknown => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  if (code === 'EADDRINUSE')
    return new ConfigError(
      `${variable}: port ${port} on ${address} is taken. Stop the program that uses it, or set ${variable} to another port.`,
      { cause: error },
    )
  if (code === 'EACCES')
    return new ConfigError(
      `${variable}: this user is not allowed to listen on port ${port}. Set a port of 1024 or higher, or allow this user to bind lower ports.`,
      { cause: error },
    )
  return error
}

/** Listens on the metrics port. If no port is configured and the default port is taken, uses any free port. */
export const listenForMetrics = async (
  host: FastifyInstance,
  { METRICS_HOST, METRICS_PORT }: Config,
  logger: Logger,
): Promise<string> => {
  const place = { variable: 'METRICS_PORT', address: METRICS_HOST } as const
  if (METRICS_PORT !== undefined) return listen(host, { ...place, port: METRICS_PORT })
  try {
    return await listen(host, { ...place, port: defaultMetricsPort })
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    logger.info({ port: defaultMetricsPort }, 'metrics: the default port is taken, so a free port is used')
    return listen(host, { ...place, port: 0 })
  }
}

const idleCheckMs = 50

/** The maximum time for a call. On connections that are open for longer, a client has not sent a whole request or does not read its answer. */
const callMaxMs = 12_000

/** Closes idle connections while the host shuts down, because keep-alive connections would delay the shutdown until they time out. */
export const closeHost = async (host: FastifyInstance & { readonly open?: OpenRequests }): Promise<void> => {
  const idle = setInterval(() => {
    // Node.js counts a connection as idle when its answer is complete, even if the answer has not been sent yet.
    if (host.open?.hasUnsent() !== true) host.server.closeIdleConnections()
  }, idleCheckMs)
  const late = setTimeout(() => host.server.closeAllConnections(), lastCallsMs + callMaxMs)
  try {
    await host.close()
  } finally {
    clearInterval(idle)
    clearTimeout(late)
  }
}
