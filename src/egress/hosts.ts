import { isIP } from 'node:net'
import type { Dns } from './dns.ts'

/**
 * The addresses of a host name, IPv4 first: mail hosts judge IPv6 senders harder, and more of the world is reachable
 * over IPv4. `code` is why some of them may be missing; it can come along with addresses, when one family failed.
 */
export type HostAddresses = {
  readonly addresses: readonly string[]
  /** For example ESERVFAIL. Null when both families were answered: then no address means there is none. */
  readonly code: string | null
}

export type ResolveHost = (host: string, signal: AbortSignal) => Promise<HostAddresses>

/** RFC 6761 §6.3: these names mean this machine, even if a DNS server answers otherwise. */
export const isLocalhost = (host: string): boolean => /(^|\.)localhost\.?$/i.test(host)

/**
 * Asks DNS, and never the hosts file or the thread pool. Literals are their own address; `localhost` is the loopback,
 * so that only a guard with an exemption lets it be dialled.
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
