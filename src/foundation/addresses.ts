import { readFile, rename, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { z } from 'zod'
import type { Config } from '../config.ts'

/** The URLs of the service, without a slash at the end. A process stores them when it starts, so that commands can show them. */
export type Addresses = { readonly apiUrl: string; readonly dashboardUrl: string }

const file = 'service.json'
const answerMaxMs = 1_000

/** Stores the addresses of this process, if the directory is writable. */
export const noteAddresses = async (dataDir: string, addresses: Addresses): Promise<void> => {
  const path = join(dataDir, file)
  try {
    await writeFile(`${path}.${process.pid}`, `${JSON.stringify(addresses)}\n`, { mode: 0o600 })
    await rename(`${path}.${process.pid}`, path)
  } catch {
    // Without the stored addresses, commands use those in the configuration.
  }
}

/** Returns the stored addresses if the service answers there, otherwise those in this configuration. */
export const addressesNow = async (config: Config): Promise<Addresses> => {
  const noted = await notedAddresses(config.DATA_DIR)
  if (noted !== null && (await Promise.all([noted.apiUrl, noted.dashboardUrl].map(answers))).every(Boolean))
    return noted
  const host = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST
  const scheme = config.TLS_CERT === undefined ? 'http' : 'https'
  return {
    apiUrl: `${scheme}://${host}:${config.API_PORT}`,
    dashboardUrl: `${scheme}://${host}:${config.DASHBOARD_PORT}`,
  }
}

const addresses = z.object({ apiUrl: z.url(), dashboardUrl: z.url() })

const notedAddresses = async (dataDir: string): Promise<Addresses | null> => {
  try {
    return addresses.parse(JSON.parse(await readFile(join(dataDir, file), 'utf8')))
  } catch {
    return null
  }
}

const answers = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const { hostname, port, protocol } = new URL(url)
    const socket = connect({
      host: hostname.replace(/^\[|\]$/g, ''),
      port: Number(port || (protocol === 'https:' ? 443 : 80)),
      timeout: answerMaxMs,
    })
    const settle = (answered: boolean) => (): void => {
      socket.destroy()
      resolve(answered)
    }
    socket.once('connect', settle(true)).once('error', settle(false)).once('timeout', settle(false))
  })
