import { afterEach, expect, test } from 'vitest'
import { createDns } from '../../src/egress/dns.ts'
import { hostsOf, isLocalhost } from '../../src/egress/hosts.ts'
import { type DnsServerDouble, startDnsServer, type Zones } from '../support/dns-server.ts'

const servers: DnsServerDouble[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

const signal = AbortSignal.timeout(60_000)

const resolve = async (zones: Zones, host: string) => {
  const server = await startDnsServer(zones)
  servers.push(server)
  const found = await hostsOf(createDns({ servers: [server.address], clock: performance }))(host, signal)
  return { ...found, asked: server.queries().toSorted() }
}

const asked = ['A a.test', 'AAAA a.test']

test('a name has the addresses of both families, IPv4 first', async () => {
  const zones: Zones = { 'a.test': { AAAA: ['2a00::1'], A: ['8.8.8.8'] } }
  expect(await resolve(zones, 'a.test')).toEqual({ addresses: ['8.8.8.8', '2a00::1'], code: null, asked })
  expect(await resolve(zones, 'A.test.')).toMatchObject({ addresses: ['8.8.8.8', '2a00::1'], asked })
})

test('a name without addresses has an empty list and no code', async () => {
  expect(await resolve({}, 'a.test')).toEqual({ addresses: [], code: null, asked })
  expect(await resolve({ 'a.test': {} }, 'a.test')).toEqual({ addresses: [], code: null, asked })
})

test('the error of one family is returned next to the addresses of the other', async () => {
  const zones: Zones = { 'a.test': { A: ['8.8.8.8'], AAAA: 'servfail' } }
  expect(await resolve(zones, 'a.test')).toEqual({ addresses: ['8.8.8.8'], code: 'ESERVFAIL', asked })
})

test.each(['8.8.8.8', '2a00::1', '127.0.0.1'])('%s is its own address, without a DNS query', async (host) => {
  expect(await resolve({}, host)).toEqual({ addresses: [host], code: null, asked: [] })
})

test.each(['localhost', 'LOCALHOST', 'localhost.', 'mail.localhost'])(
  '%s is this machine, no matter what a server answers',
  async (host) => {
    const zones: Zones = { [host.toLowerCase()]: { A: ['8.8.8.8'] } }
    expect(await resolve(zones, host)).toEqual({ addresses: ['127.0.0.1', '::1'], code: null, asked: [] })
  },
)

test.each(['localhost.test', 'notlocalhost', 'localhost..', ''])('%j is not this machine by name', (host) => {
  expect(isLocalhost(host)).toBe(false)
})
