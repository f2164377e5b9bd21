import { createSocket } from 'node:dgram'
import { isIP } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import pg from 'pg'
import { within } from '../concurrency/deadline.ts'
import { ConfigError } from '../config.ts'

/**
 * Which address PEER_HOST means: where this process listens, and what it writes into the table for others to dial.
 * All processes reach the same database, so the address by which this machine reaches it is one that they share a
 * network with. An address of every interface (`0.0.0.0`, `::`) is none that can be dialled.
 */
export type PeerHost = { readonly listen: string; readonly dial: string }

/** A name has to be looked up. */
const routeMaxMs = 2_000
/** Nothing is sent there: the system only says by which of its addresses it would be. */
const anyPort = 5432

/** Throws `ConfigError` where there is no such address. */
export const peerHostOf = async (
  setting: string,
  databaseUrl: string,
  routeTo: (host: string) => Promise<string | null> = routeAddress,
): Promise<PeerHost> => {
  const wildcard = setting === '0.0.0.0' || setting === '::'
  if (setting !== 'auto' && !wildcard) return { listen: setting, dial: setting }
  const toDatabase = await routeTo(new pg.Client({ connectionString: databaseUrl }).host)
  if (!wildcard) {
    if (toDatabase !== null) return { listen: toDatabase, dial: toDatabase }
    throw new ConfigError(
      'PEER_HOST: auto is the address by which this machine reaches its database, and there is none now. Set an address of this machine',
    )
  }
  const family = isIP(setting)
  const fits = toDatabase !== null && isIP(toDatabase) === family && !isLoopback(toDatabase)
  const dial = fits ? toDatabase : firstAddress(family)
  return { listen: setting, dial: dial ?? hostname() }
}

/** By which address of this machine a host is reached; null where it is not, or through a file. */
const routeAddress = async (host: string): Promise<string | null> => {
  if (host === '' || host.startsWith('/')) return null
  const addressOver = (family: 'udp4' | 'udp6'): Promise<string | null> =>
    new Promise((resolve) => {
      const socket = createSocket(family)
      const settle = (address: string | null): void => {
        resolve(address)
        socket.close()
      }
      socket.once('error', () => settle(null))
      // With a callback a failure would go there.
      socket.once('connect', () => settle(socket.address().address))
      socket.connect(anyPort, host)
    })
  const found = async (): Promise<string | null> => (await addressOver('udp4')) ?? (await addressOver('udp6'))
  return within(found(), { waitMs: routeMaxMs }, () => null)
}

const firstAddress = (family: number): string | undefined =>
  Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ address, internal }) => !internal && isIP(address) === family && !address.startsWith('fe80:'))
    ?.address

/** Whether only processes of the same machine can dial it. */
export const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
