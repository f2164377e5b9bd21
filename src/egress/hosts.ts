import { isIP } from 'node:net'
import type { Dns } from './dns.ts'

/** IPv4 addresses come first, because mail hosts trust IPv6 senders less and more hosts are reachable over IPv4. */
export type HostAddresses = {
  readonly addresses: readonly string[]
  /** Why addresses may be missing, such as ESERVFAIL; null: the queries for both families were answered. */
  readonly code: string | null
}

export type ResolveHost = (host: string, signal: AbortSignal) => Promise<HostAddresses>

/** RFC 6761 §6.3: these names mean this machine, whatever DNS servers answer. */
export const isLocalhost = (host: string): boolean => /(^|\.)localhost\.?$/i.test(host)

/**
 * Uses DNS, never the hosts file or the thread pool. A literal is its own address. `localhost` is the loopback address, which only a guard with
 * an exemption permits.
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
