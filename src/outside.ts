import { type Config, ConfigError } from './config.ts'
import { createDns, type Dns } from './egress/dns.ts'
import { createEgressGuard, type EgressGuard } from './egress/guard.ts'
import { hostsOf } from './egress/hosts.ts'
import { fetchBounded, type PageAnswer, type PageRequest } from './egress/page.ts'

/** The ways out of the house, shared by whoever reaches out: one guard, one resolver with one cache. */
export type Outside = {
  readonly guard: EgressGuard
  readonly dns: Dns
  /** For pages of strangers: at most `pagesMax` at a time, the others wait. */
  readonly fetchPage: (request: PageRequest) => Promise<PageAnswer>
  /** For a source the operator chose: as many at a time as whoever asks allows. */
  readonly fetchUpstream: (request: PageRequest) => Promise<PageAnswer>
}

/** A hostile page may take this many times its decoded maximum before it is let go. */
const pagesMax = 16
const pagesWaitingMax = 256

/** Throws `ConfigError` for a DNS server or an exemption that is none. */
export const openOutside = (config: Pick<Config, 'DNS_SERVERS' | 'EGRESS_ALLOW'>): Outside => {
  const guard = named('EGRESS_ALLOW', () => createEgressGuard({ allow: config.EGRESS_ALLOW }))
  const dns = named('DNS_SERVERS', () =>
    createDns({ servers: config.DNS_SERVERS ?? null, clock: performance }),
  )
  const door = { guard, resolveHost: hostsOf(dns) }
  const waiting: (() => void)[] = []
  let fetching = 0
  return {
    guard,
    dns,
    fetchUpstream: (request) => fetchBounded(request, door),
    fetchPage: async (request) => {
      if (fetching >= pagesMax) {
        if (waiting.length >= pagesWaitingMax) return { kind: 'unreachable', detail: 'busy' }
        await new Promise<void>((resolve) => waiting.push(resolve))
      }
      fetching += 1
      try {
        return await fetchBounded(request, door)
      } finally {
        fetching -= 1
        waiting.shift()?.()
      }
    },
  }
}

const named = <T>(variable: string, open: () => T): T => {
  try {
    return open()
  } catch (error) {
    throw new ConfigError(`${variable}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    })
  }
}
