import { isIP } from 'node:net'
import type { Dns } from './dns.ts'

/** IPv4 addresses come first, because mail hosts trust IPv6 senders less, and because more hosts are reachable over IPv4. */
export type HostAddresses = {
  readonly addresses: readonly string[]
  /** The code of a failed query, such as ESERVFAIL, after which addresses can be missing. Null: the queries for both families were answered. */
  readonly code: string | null
}

export type ResolveHost = (host: string, signal: AbortSignal) => Promise<HostAddresses>

/** These names mean this machine, regardless of the answers of DNS servers (RFC 6761 §6.3). */
export const isLocalhost = (host: string): boolean => /(^|\.)localhost\.?$/i.test(host)

/**
 * Returns a function that resolves a host with DNS, without the hosts file and the thread pool. An address is returned unchanged. `localhost` is the
 * loopback address, which a guard allows only if it is exempt.
 */
export const hostsOf =
  (dns: Dns): ResolveHost =>
  async (host, signal) => {
    if (isIP(host) !== 0) return { addresses: [host], code: null }
    if (isLocalhost(host)) return { addresses: ['127.0.0.1', '::1'], code: null }
    const name = host.endsWith('.') ? host.slice(0, -1) : host
    const answers = await Promise.all([
      dns.resolve(name, 'A', { signal }),
      dns.resolve(name, 'AAAA', { signal }),
    ])
    const failure = answers.find((answer) => answer.kind === 'failed')
    return {
      addresses: answers.flatMap((answer) =>
        answer.kind === 'records' ? answer.records.map(({ value }) => value) : [],
      ),
      code: failure?.kind === 'failed' ? failure.code : null,
    }
  }
