import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import type { OpenRequests } from '../call/connections.ts'
import { type Config, ConfigError } from '../config.ts'
import { defaultMetricsPort } from '../metrics/host.ts'

/** Where a host should listen. `variable` names the port in messages. */
export type Place = {
  readonly variable: 'API_PORT' | 'DASHBOARD_PORT' | 'METRICS_PORT'
  readonly address: string
  readonly port: number
}

/** Returns the URL at which the host answers. Throws `ConfigError` if the port is taken or not allowed. */
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

/** Returns a `ConfigError` if the variable caused the failure; any other error unchanged. */
const listenFault = (error: unknown, { variable, address, port }: Place): unknown => {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  if (code === 'EADDRINUSE')
    return new ConfigError(
      `${variable}: port ${port} on ${address} is taken. Stop what listens there or set ${variable} to another port.`,
      { cause: error },
    )
  if (code === 'EACCES')
    return new ConfigError(
      `${variable}: this user may not listen on port ${port}. Set a port from 1024 on, or run with the right to bind lower ones.`,
      { cause: error },
    )
  return error
}

/** Listens on the metrics port. If the default port is taken, uses any free port, because the operator did not choose the default. */
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
    logger.info({ port: defaultMetricsPort }, 'metrics: the default port is taken, using another port')
    return listen(host, { ...place, port: 0 })
  }
}

const idleCheckMs = 50

/** Calls are answered within 12 s. Connections still open after that never sent a whole request, or do not read their answer. */
const answersMaxMs = 13_000

/** Closes connections that become idle, because kept-alive connections would delay the host's shutdown until they time out. */
export const closeHost = async (host: FastifyInstance & { readonly open?: OpenRequests }): Promise<void> => {
  const idle = setInterval(() => {
    // Node.js counts a connection as idle when its answer is finished, even if the answer has not been sent yet.
    if (host.open?.hasUnsent() !== true) host.server.closeIdleConnections()
  }, idleCheckMs)
  const late = setTimeout(() => host.server.closeAllConnections(), answersMaxMs)
  try {
    await host.close()
  } finally {
    clearInterval(idle)
    clearTimeout(late)
  }
}
