import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { createServer } from 'node:net'
import { type Config, ConfigError } from '../config.ts'
import { codeOf } from '../event-log/directory.ts'
import { readTls } from './tls.ts'

/** Throws `ConfigError` if HOST or METRICS_HOST is not an address of this machine, or if certificates or location files cannot be read. */
export const checkSurroundings = async (config: Config): Promise<void> => {
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

/** Checks an address by listening on any free port for a moment. */
const checkHost = (variable: 'HOST' | 'METRICS_HOST', host: string): Promise<void> =>
  new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', (cause) => {
      const unresolved = codeOf(cause) === 'ENOTFOUND' || codeOf(cause) === 'EAI_AGAIN'
      reject(
        new ConfigError(
          `${variable}: "${host}" ${unresolved ? 'does not resolve to an address' : `is not an address of this machine (${codeOf(cause)})`}. Set an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all its addresses.`,
          { cause },
        ),
      )
    })
    probe.listen({ host, port: 0 }, () => probe.close(() => resolve()))
  })
