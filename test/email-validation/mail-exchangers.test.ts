import { afterEach, describe, expect, test } from 'vitest'
import { createMailExchangers } from '../../src/capabilities/email-validation/dns/mail-exchangers.ts'
import { createDns } from '../../src/egress/dns.ts'
import { createEgressGuard } from '../../src/egress/guard.ts'
import { type DnsServerDouble, startDnsServer, type Zones } from '../support/dns-server.ts'

const servers: DnsServerDouble[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

type Options = {
  allow?: string[]
  random?: () => number
  delayMs?: number
  searchDeadlineMs?: number
}

const start = async (
  zones: Zones,
  { allow = [], random = () => 0.5, delayMs = 0, searchDeadlineMs = 5_000 }: Options = {},
) => {
  const server = await startDnsServer(zones, { delayMs })
  servers.push(server)
  const dns = createDns({ servers: [server.address], clock: performance, attemptTimeoutMs: 500 })
  const guard = createEgressGuard({ allow })
  return { server, exchangers: createMailExchangers({ dns, guard, random, searchDeadlineMs }) }
}

const find = async (zones: Zones, options?: Options) =>
  (await start(zones, options)).exchangers.find('a.test')

const mx = (exchange: string, priority = 10) => ({ priority, exchange })

describe('DNS answers of a domain', () => {
  test('the exchangers are in order of priority, each with its addresses to dial, IPv4 first', async () => {
    expect(
      await find({
        'a.test': { MX: [mx('two.a.test', 20), mx('one.a.test', 10)] },
        'one.a.test': { A: ['8.8.8.8', '8.8.4.4'], AAAA: ['2a00::1'] },
        'two.a.test': { AAAA: ['2a00::2'] },
      }),
    ).toEqual({
      kind: 'found',
      implicit: false,
      records: [mx('one.a.test', 10), mx('two.a.test', 20)],
      targets: [
        { exchange: 'one.a.test', addresses: ['8.8.8.8', '8.8.4.4', '2a00::1'] },
        { exchange: 'two.a.test', addresses: ['2a00::2'] },
      ],
      provider: null,
    })
  })

  test('without MX records its own address is an implicit exchanger (RFC 5321 §5.1)', async () => {
    expect(await find({ 'a.test': { A: ['8.8.8.8'] } })).toEqual({
      kind: 'found',
      implicit: true,
      records: [],
      targets: [{ exchange: 'a.test', addresses: ['8.8.8.8'] }],
      provider: null,
    })
    expect(await find({ 'a.test': { AAAA: ['2a00::1'] } })).toMatchObject({
      implicit: true,
      targets: [{ addresses: ['2a00::1'] }],
    })
  })

  test('MX records that lead nowhere are not replaced by its own address', async () => {
    const zones: Zones = { 'a.test': { MX: [mx('gone.a.test')], A: ['8.8.8.8'] } }
    expect(await find(zones)).toMatchObject({
      kind: 'unroutable',
      implicit: false,
      records: [mx('gone.a.test')],
    })
  })

  test('a null MX accepts no mail, even if the domain has an address (RFC 7505)', async () => {
    expect(await find({ 'a.test': { MX: [mx('', 0)], A: ['8.8.8.8'] } })).toEqual({ kind: 'null_mx' })
  })

  test('a null MX next to other records, which RFC 7505 forbids, does not hide them', async () => {
    expect(
      await find({ 'a.test': { MX: [mx('', 0), mx('mx.a.test')] }, 'mx.a.test': { A: ['8.8.8.8'] } }),
    ).toMatchObject({ kind: 'found', records: [mx('mx.a.test')] })
  })

  test('NXDOMAIN is domain_not_found', async () => {
    expect(await find({})).toEqual({ kind: 'domain_not_found' })
  })

  test('neither MX nor address is no_mail_server', async () => {
    expect(await find({ 'a.test': {} })).toEqual({ kind: 'no_mail_server' })
  })

  test.each([
    ['SERVFAIL', 'servfail', 'ESERVFAIL'],
    ['REFUSED', 'refused', 'EREFUSED'],
    ['silence', 'silence', 'ETIMEOUT'],
  ] as const)('%s is dns_error', async (_, answer, code) => {
    expect(await find({ 'a.test': { MX: answer } })).toEqual({ kind: 'dns_error', code })
  })
})

describe('temporary failures never make a domain look dead', () => {
  test('no MX, and its own addresses could not be resolved', async () => {
    expect(await find({ 'a.test': { A: 'servfail' } })).toEqual({ kind: 'dns_error', code: 'ESERVFAIL' })
    expect(await find({ 'a.test': { AAAA: 'refused' } })).toEqual({ kind: 'dns_error', code: 'EREFUSED' })
  })

  test('one exchanger is missing and the other could not be resolved', async () => {
    const zones: Zones = {
      'a.test': { MX: [mx('gone.a.test', 10), mx('mx.a.test', 20)] },
      'mx.a.test': 'servfail',
    }
    expect(await find(zones)).toEqual({ kind: 'dns_error', code: 'ESERVFAIL' })
  })

  test('an exchanger has a private address and its other family could not be resolved', async () => {
    const zones: Zones = {
      'a.test': { MX: [mx('mx.a.test')] },
      'mx.a.test': { A: ['10.0.0.1'], AAAA: 'servfail' },
    }
    expect(await find(zones)).toEqual({ kind: 'dns_error', code: 'ESERVFAIL' })
  })

  test('the resolved exchangers are enough', async () => {
    const zones: Zones = {
      'a.test': { MX: [mx('bad.a.test', 10), mx('half.a.test', 20)] },
      'bad.a.test': 'servfail',
      'half.a.test': { A: ['8.8.8.8'], AAAA: 'servfail' },
    }
    expect(await find(zones)).toMatchObject({
      kind: 'found',
      targets: [{ exchange: 'half.a.test', addresses: ['8.8.8.8'] }],
    })
  })
})

describe('addresses that mail servers must not have', () => {
  test.each([
    ['A', '10.0.0.1'],
    ['AAAA', '::1'],
  ])('an exchanger at %s %s is unroutable', async (type, address) => {
    const evidence = await find({ 'a.test': { MX: [mx('mx.a.test')] }, 'mx.a.test': { [type]: [address] } })
    expect(evidence).toEqual({
      kind: 'unroutable',
      implicit: false,
      records: [mx('mx.a.test')],
      provider: null,
    })
  })

  test('a domain that is its own exchanger at a private address is unroutable', async () => {
    expect(await find({ 'a.test': { A: ['10.0.0.1'] } })).toEqual({
      kind: 'unroutable',
      implicit: true,
      records: [],
      provider: null,
    })
  })

  test('only the permitted addresses are kept, and only exchangers that have one', async () => {
    const zones: Zones = {
      'a.test': { MX: [mx('inside.a.test', 5), mx('both.a.test', 10)] },
      'inside.a.test': { A: ['10.0.0.1'] },
      'both.a.test': { A: ['127.0.0.1', '8.8.8.8'], AAAA: ['::1'] },
    }
    expect(await find(zones)).toMatchObject({
      kind: 'found',
      records: [mx('inside.a.test', 5), mx('both.a.test', 10)],
      targets: [{ exchange: 'both.a.test', addresses: ['8.8.8.8'] }],
    })
  })

  test.each(['192.0.2.1', '8.8.8.8', 'localhost', 'mail.localhost'])(
    'an exchanger named %s is refused without a query, exempt or not',
    async (exchange) => {
      const zones: Zones = { 'a.test': { MX: [mx(exchange)] }, [exchange]: { A: ['127.0.0.1'] } }
      const { server, exchangers } = await start(zones, { allow: ['0.0.0.0/0', '::/0'] })
      expect(await exchangers.find('a.test')).toMatchObject({ kind: 'unroutable', records: [mx(exchange)] })
      expect(server.queries()).toEqual(['MX a.test'])
    },
  )

  test.each(['localhost', '8.8.8.8', '[8.8.8.8]', ''])('a domain %j is not queried', async (domain) => {
    const { server, exchangers } = await start({}, { allow: ['0.0.0.0/0', '::/0'] })
    expect(await exchangers.find(domain)).toMatchObject({ kind: 'unroutable' })
    expect(server.queries()).toEqual([])
  })

  test('an exemption allows a private exchanger to be dialled', async () => {
    const zones: Zones = { 'a.test': { MX: [mx('mx.a.test')] }, 'mx.a.test': { A: ['127.0.0.1'] } }
    expect(await find(zones, { allow: ['127.0.0.0/8'] })).toMatchObject({
      kind: 'found',
      targets: [{ exchange: 'mx.a.test', addresses: ['127.0.0.1'] }],
    })
  })
})

describe('order and number', () => {
  const hosts = (names: readonly string[]): Zones =>
    Object.fromEntries(names.map((name) => [name, { A: ['8.8.8.8'] }]))

  test('exchangers of equal priority are tried in random order, but reported in a fixed order', async () => {
    const names = ['x.a.test', 'y.a.test', 'z.a.test']
    const zones: Zones = { 'a.test': { MX: names.map((name) => mx(name)) }, ...hosts(names) }
    const order = async (lots: number[]) => {
      const evidence = await find(zones, { random: () => lots.shift() ?? 0 })
      if (evidence.kind !== 'found') throw new Error(evidence.kind)
      expect(evidence.records).toEqual(names.map((name) => mx(name)))
      return evidence.targets.map(({ exchange }) => exchange)
    }
    expect(await order([0.1, 0.2, 0.3])).toEqual(['x.a.test', 'y.a.test', 'z.a.test'])
    expect(await order([0.9, 0.5, 0.1])).toEqual(['z.a.test', 'y.a.test', 'x.a.test'])
  })

  test('random order never overrides priority', async () => {
    const zones: Zones = {
      'a.test': { MX: [mx('x.a.test', 20), mx('y.a.test', 10)] },
      ...hosts(['x.a.test', 'y.a.test']),
    }
    const lots = [0.9, 0.1]
    expect(await find(zones, { random: () => lots.shift() ?? 0 })).toMatchObject({
      targets: [{ exchange: 'y.a.test' }, { exchange: 'x.a.test' }],
    })
  })

  test('three targets are enough: the others are not resolved', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `mx${String(i).padStart(2, '0')}.a.test`)
    const zones: Zones = { 'a.test': { MX: names.map((name, i) => mx(name, i)) }, ...hosts(names) }
    const { server, exchangers } = await start(zones)
    const evidence = await exchangers.find('a.test')
    expect(evidence).toMatchObject({ records: names.slice(0, 10).map((name, i) => mx(name, i)) })
    expect(evidence.kind === 'found' && evidence.targets.map(({ exchange }) => exchange)).toEqual(
      names.slice(0, 3),
    )
    expect(server.queries()).toHaveLength(1 + 3 * 2)
  })

  test('exchangers that lead nowhere are replaced by later ones, ten at most', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `mx${String(i).padStart(2, '0')}.a.test`)
    const MX = names.map((name, i) => mx(name, i))
    const tenth = await start({ 'a.test': { MX }, 'mx09.a.test': { A: ['8.8.8.8'] } })
    expect(await tenth.exchangers.find('a.test')).toMatchObject({ targets: [{ exchange: 'mx09.a.test' }] })
    const eleventh = await start({ 'a.test': { MX }, 'mx10.a.test': { A: ['8.8.8.8'] } })
    // The eleventh exchanger is not looked up, and it might have an address.
    expect(await eleventh.exchangers.find('a.test')).toMatchObject({ kind: 'dns_error', code: 'ETOOMANY' })
    expect(eleventh.server.queries()).toHaveLength(1 + 10 * 2)
  })

  test('four addresses of an exchanger are enough', async () => {
    const A = Array.from({ length: 9 }, (_, i) => `8.8.8.${i}`)
    const evidence = await find({ 'a.test': { A } })
    expect(evidence.kind === 'found' && evidence.targets[0]?.addresses).toEqual(A.slice(0, 4))
  })
})

describe('the operator of the exchanger', () => {
  test.each([
    ['gmail-smtp-in.l.google.com', 'google'],
    ['aspmx2.googlemail.com', 'google'],
    ['a-test.mail.protection.outlook.com', 'microsoft'],
    ['a-test.j-v1.mx.microsoft', 'microsoft'],
    ['mx.yandex.net', 'yandex'],
    ['eu-smtp-inbound-1.mimecast.com', 'mimecast'],
    ['inbound-smtp.eu-west-1.amazonaws.com', 'amazon'],
    ['163mx01.mxmail.netease.com', 'netease'],
    ['notgoogle.com', null],
    ['google.com.a.test', null],
  ])('%s: %s', async (exchange, provider) => {
    const zones: Zones = { 'a.test': { MX: [mx(exchange)] }, [exchange]: { A: ['8.8.8.8'] } }
    expect(await find(zones)).toMatchObject({ kind: 'found', provider })
  })

  test('is that of the first-priority exchangers: a backup elsewhere has no information about the mailbox', async () => {
    const zones: Zones = { 'a.test': { MX: [mx('own.a.test', 10), mx('spool.mail.gandi.net', 50)] } }
    expect(await find(zones)).toMatchObject({ provider: null })
  })
})

describe('load and slow servers', () => {
  test('a hundred identical concurrent searches cause one upstream query of each kind', async () => {
    const zones: Zones = { 'a.test': { MX: [mx('mx.a.test')] }, 'mx.a.test': { A: ['8.8.8.8'] } }
    const { server, exchangers } = await start(zones, { delayMs: 20 })
    const all = await Promise.all(Array.from({ length: 100 }, () => exchangers.find('a.test')))
    expect(all.every(({ kind }) => kind === 'found')).toBe(true)
    expect(server.queries().toSorted()).toEqual(['A mx.a.test', 'AAAA mx.a.test', 'MX a.test'])
  })

  test('servers that are slow at every step give a dns_error within the deadline', async () => {
    const names = Array.from({ length: 10 }, (_, i) => `mx${i}.a.test`)
    const { exchangers } = await start(
      { 'a.test': { MX: names.map((name) => mx(name)) } },
      { delayMs: 400, searchDeadlineMs: 1_000 },
    )
    // With enough time, four more waits would show that all ten are missing.
    expect(await exchangers.find('a.test')).toEqual({ kind: 'dns_error', code: 'ETIMEOUT' })
  })
})
