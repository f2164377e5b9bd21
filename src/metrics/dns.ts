import type { Meters } from '../call/capability.ts'

/** Exports the counts of the DNS code. That code counts in plain numbers, so that an answer from the cache costs only an addition. */
export const meterDns = (
  meters: Meters,
  status: () => { readonly queries: Readonly<Record<string, number>>; readonly cacheHits: number },
): void => {
  meters.total(
    {
      name: 'dns_queries_total',
      help: 'DNS queries, by outcome; busy: not sent, because too many were already in progress',
      labels: ['outcome'],
    },
    () => Object.entries(status().queries).map(([outcome, value]) => ({ labels: { outcome }, value })),
  )
  meters.total({ name: 'dns_cache_hits_total', help: 'DNS questions answered from the cache' }, () => [
    { value: status().cacheHits },
  ])
}
