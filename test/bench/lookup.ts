import { readFileSync } from 'node:fs'
import maxmind, { type Response } from 'maxmind'
import { bundledGeoPaths, openGeoDatabase } from '../../src/capabilities/ip-lookup/geo-database.ts'
import { renderResult } from '../../src/capabilities/ip-lookup/index.ts'
import { parseAddress } from '../../src/egress/address.ts'
import { randomOf } from './random.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'

/**
 * An address in, the location or the rendered answer out, against the decoded record of `maxmind.open` with its
 * defaults. They take turns, each over addresses that were not used before.
 */

const addressesPerPass = 100_000
const hotAddresses = 5_000
const warmUpPasses = 3
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined }

export const lookup = async ({ rounds, begin, report }: BenchOptions): Promise<Row[]> => {
  const [path4 = '', path6 = ''] = bundledGeoPaths()
  const ours = await openGeoDatabase({ paths: [path4, path6], logger: quiet })
  const theirs = { 4: await maxmind.open<Response>(path4), 6: await maxmind.open<Response>(path6) }
  const random = randomOf(7)
  const ipv6 = ipv6Addresses(path6, random)
  const hot = Array.from({ length: hotAddresses }, () => ipv4Address(random))
  const kinds: readonly { title: string; family: 4 | 6; next: () => string }[] = [
    { title: 'uniform IPv4', family: 4, next: () => ipv4Address(random) },
    {
      title: `skewed IPv4 (${hotAddresses} hot)`,
      family: 4,
      next: () => hot[Math.floor(random() * hotAddresses)] ?? '',
    },
    { title: 'IPv6', family: 6, next: ipv6 },
  ]
  let kept = 0
  const locate = (text: string) => {
    const address = parseAddress(text)
    if (address === null) throw new Error(text)
    return {
      ip: address.canonical,
      type: address.type,
      location: address.reachable ? ours.lookup(address.lookup) : null,
    }
  }
  const map = (text: string): void => {
    if (locate(text).location !== null) kept++
  }
  const render = (text: string): void => {
    kept += renderResult(locate(text)).length
  }
  const rows: Row[] = []
  begin()
  for (const { title, family, next } of kinds) {
    const figures = { mapped: [] as number[], rendered: [] as number[], theirs: [] as number[] }
    const reader = theirs[family]
    const get = (text: string): void => {
      if (reader.get(text) !== null) kept++
    }
    // More passes than are counted: the first ones warm everything up, including caches of earlier lookups.
    for (let round = 0; round < rounds + warmUpPasses; round++) {
      const pass = (call: (text: string) => void): number =>
        nsPerCall(call, Array.from({ length: addressesPerPass }, next))
      const now = { mapped: pass(map), rendered: pass(render), theirs: pass(get) }
      if (round < warmUpPasses) continue
      figures.mapped.push(now.mapped)
      figures.rendered.push(now.rendered)
      figures.theirs.push(now.theirs)
    }
    report(
      `lookup, ${title}: mapped ${figures.mapped.map(Math.round)}, rendered ${figures.rendered.map(Math.round)}, ` +
        `maxmind ${figures.theirs.map(Math.round)} ns (${kept})`,
    )
    for (const what of ['mapped', 'rendered'] as const)
      rows.push(
        ratioRow(`lookup to ${what} answer, ${title}`, {
          measured: 1e9 / median(figures[what]),
          against: 1e9 / median(figures.theirs),
          ratio: median(figures[what].map((ns, i) => (figures.theirs[i] ?? Number.NaN) / ns)),
          unit: '/s',
          bound: { least: 0.5 },
        }),
      )
  }
  return rows
}

const nsPerCall = (call: (text: string) => void, addresses: readonly string[]): number => {
  const startedAt = performance.now()
  for (const address of addresses) call(address)
  return ((performance.now() - startedAt) * 1e6) / addresses.length
}

const ipv4Address = (random: () => number): string => {
  for (;;) {
    const bits = Math.floor(random() * 2 ** 32)
    const text = `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`
    if (parseAddress(text)?.reachable === true) return text
  }
}

/** Addresses of the blocks with most records: uniform addresses over all of IPv6 would miss every used block. */
const ipv6Addresses = (path: string, random: () => number): (() => string) => {
  const reader = new maxmind.Reader<Response>(readFileSync(path))
  const group = (): number => Math.floor(random() * 0x10000)
  return () => {
    for (;;) {
      const text = `2a0${Math.floor(random() * 16).toString(16)}:${group().toString(16)}::${group().toString(16)}`
      if (reader.get(text) !== null && parseAddress(text)?.reachable === true) return text
    }
  }
}
