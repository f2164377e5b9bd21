import { promises } from 'node:dns'
import { createDns } from '../../src/egress/dns.ts'
import { startDnsServer, type Zones } from '../support/dns-server.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'

/**
 * MX questions against `node:dns`, over a server on the loopback: how many reach it if a hundred identical ones are
 * asked together, and the cost of a new question, which includes its own socket.
 */

const identical = 100
const distinctPerRound = 500
const concurrent = 50
/** Loopback answers too soon for callers to be waiting. */
const serverDelayMs = 20

export const mxLookups = async ({ rounds, begin, report }: BenchOptions): Promise<Row[]> => {
  const exchange = [{ priority: 10, exchange: 'mx.bench.test' }]
  const slow = await startDnsServer({ 'bench.test': { MX: exchange } }, { delayMs: serverDelayMs })
  const names = Array.from({ length: distinctPerRound * (rounds + 1) }, (_, i) => `name${i}.bench.test`)
  const zones: Zones = Object.fromEntries(names.map((name) => [name, { MX: exchange }]))
  const quick = await startDnsServer(zones)
  const resolverTo = (address: string): promises.Resolver => {
    const resolver = new promises.Resolver()
    resolver.setServers([address])
    return resolver
  }
  try {
    begin()
    const upstream = async (ask: () => Promise<unknown>): Promise<number> => {
      const before = slow.queries().length
      await Promise.all(Array.from({ length: identical }, ask))
      return slow.queries().length - before
    }
    const dns = createDns({ servers: [slow.address], clock: performance })
    const slowResolver = resolverTo(slow.address)
    const ours = await upstream(() => dns.resolve('bench.test', 'MX'))
    const theirs = await upstream(() => slowResolver.resolveMx('bench.test'))
    const again = await upstream(() => dns.resolve('bench.test', 'MX'))

    const costs = { ours: [] as number[], theirs: [] as number[] }
    for (let round = 0; round <= rounds; round++) {
      const asked = names.slice(round * distinctPerRound, (round + 1) * distinctPerRound)
      const fresh = createDns({ servers: [quick.address], clock: performance })
      const resolver = resolverTo(quick.address)
      const now = {
        ours: await perSecond(asked, (name) => fresh.resolve(name, 'MX')),
        theirs: await perSecond(asked, (name) => resolver.resolveMx(name)),
      }
      // The first round is a warm-up.
      if (round === 0) continue
      costs.ours.push(now.ours)
      costs.theirs.push(now.theirs)
    }
    report(`mx: ${costs.ours.map(Math.round)} against ${costs.theirs.map(Math.round)} distinct questions/s`)
    return [
      ratioRow(`MX questions upstream for ${identical} simultaneous identical ones, against node:dns`, {
        measured: ours,
        against: theirs,
        unit: '',
        bound: { most: 1 / identical },
      }),
      figureRow(`the same again, within the TTL`, again, '', { most: 0 }),
      ratioRow('distinct MX questions, nothing remembered, against node:dns', {
        measured: median(costs.ours),
        against: median(costs.theirs),
        ratio: median(costs.ours.map((rate, i) => rate / (costs.theirs[i] ?? Number.NaN))),
        unit: '/s',
        // A fresh port for each question makes forgery hard; a call asks only a few.
        bound: { least: 0.3 },
      }),
    ]
  } finally {
    await slow.close()
    await quick.close()
  }
}

const perSecond = async (
  names: readonly string[],
  ask: (name: string) => Promise<unknown>,
): Promise<number> => {
  const startedAt = performance.now()
  let next = 0
  const worker = async (): Promise<void> => {
    for (let name = names[next++]; name !== undefined; name = names[next++]) await ask(name)
  }
  await Promise.all(Array.from({ length: concurrent }, worker))
  return names.length / ((performance.now() - startedAt) / 1000)
}
