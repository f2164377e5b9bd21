import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { createServer } from 'node:net'
import { openFilesMax, openFilesMin } from '../call/connections.ts'
import { type Config, ConfigError } from '../config.ts'
import { codeOf } from '../event-log/directory.ts'
import { listenFault, type Place } from './listen.ts'
import { readTls } from './tls.ts'

/**
 * Throws `ConfigError` if HOST or METRICS_HOST is not an address of this machine, if the process may open too few files, or if certificates
 * or location files cannot be read. Otherwise, a start would fail only after it has created or opened the database.
 */
export const checkSurroundings = async (config: Config): Promise<void> => {
  if (openFilesMax() < openFilesMin)
    throw new ConfigError(
      `this process may open only ${openFilesMax()} files, and needs at least ${openFilesMin}. Raise the limit (ulimit -n, or LimitNOFILE in systemd).`,
    )
  if (config.ROLES.some((role) => role === 'api' || role === 'dashboard')) {
    await checkHost('HOST', config.HOST)
    await readTls(config)
  }
  await checkHost('METRICS_HOST', config.METRICS_HOST)
  if (config.ROLES.includes('api'))
    for (const path of config.GEOIP_CITY_DB ?? [])
      await access(path, constants.R_OK).catch((cause: unknown) => {
        throw new ConfigError(
          `GEOIP_CITY_DB: ${path} ${codeOf(cause) === 'ENOENT' ? 'does not exist' : `cannot be read (${codeOf(cause)})`}`,
          { cause },
        )
      })
}

/** Throws `ConfigError` if a port is taken. Only for a start, because a running service has taken its own ports. */
export const checkPorts = async (config: Config): Promise<void> => {
  const { ROLES, HOST: address, API_PORT, DASHBOARD_PORT } = config
  if (ROLES.includes('api')) await checkPort({ variable: 'API_PORT', address, port: API_PORT })
  if (ROLES.includes('dashboard'))
    await checkPort({ variable: 'DASHBOARD_PORT', address, port: DASHBOARD_PORT })
}

const checkHost = (variable: 'HOST' | 'METRICS_HOST', host: string): Promise<void> =>
  listenBriefly(host, 0).catch((cause: unknown) => {
    const unresolved = codeOf(cause) === 'ENOTFOUND' || codeOf(cause) === 'EAI_AGAIN'
    throw new ConfigError(
      `${variable}: "${host}" ${unresolved ? 'does not resolve to an address' : `is not an address of this machine (${codeOf(cause)})`}. Set an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all its addresses.`,
      { cause },
    )
  })

const checkPort = (place: Place): Promise<void> =>
  listenBriefly(place.address, place.port).catch((error: unknown) => {
    throw listenFault(error, place)
  })

/** Listens for a moment. Port 0 is any free port. */
const listenBriefly = (host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen({ host, port }, () => probe.close(() => resolve()))
  })
