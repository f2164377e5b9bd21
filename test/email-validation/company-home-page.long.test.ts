import { describe, expect, test, vi } from 'vitest'
import { createHomePages, type FetchPage } from '../../src/capabilities/email-validation/company/home-page.ts'
import { read } from '../../src/capabilities/email-validation/company/on-page.ts'
import { companyOf } from '../../src/capabilities/email-validation/company/record.ts'
import { type CompanyResult, companyResult } from '../../src/capabilities/email-validation/contract.ts'
import type { JsonObject } from '../../src/egress/json-ld-nodes.ts'
import type { PageAnswer, PageRequest } from '../../src/egress/page.ts'

/** Data that companies publish on their home pages: which data is accepted, and how long a request may take. */

const nowMs = Date.parse('2026-11-21T12:00:00Z')
const at = { domain: 'example.com', pageUrl: 'https://www.example.com/', nowMs }
const onPage = (...nodes: JsonObject[]) => read(nodes, at)
const organization = { '@type': 'Organization', name: 'Example', url: 'https://example.com/' }

describe('parsing an organization', () => {
  test('every member of the answer is read from a full organization', () => {
    const company = onPage({
      '@context': 'https://schema.org',
      '@type': 'Corporation',
      name: 'Example',
      legalName: 'Example Holding plc',
      url: 'https://www.example.com',
      logo: { '@type': 'ImageObject', url: '/logo.png' },
      foundingDate: '1987-06-05',
      numberOfEmployees: { '@type': 'QuantitativeValue', value: 1234 },
      address: {
        '@type': 'PostalAddress',
        addressLocality: 'Wien',
        addressRegion: { '@type': 'State', name: 'Wien' },
        addressCountry: { '@type': 'Country', name: 'Österreich' },
      },
      sameAs: ['https://example.org/@example', 'https://www.linkedin.com/company/example/'],
    })
    expect(company).toEqual({
      name: 'Example',
      legal_name: 'Example Holding plc',
      domain: 'example.com',
      website: 'https://www.example.com',
      industry: null,
      size_range: '1001-5000',
      employee_count: 1_234,
      founded_year: 1987,
      location: { locality: 'Wien', region: 'Wien', country: 'Austria', country_code: 'AT' },
      profnet_url: 'https://www.linkedin.com/company/example/',
      logo_url: 'https://www.example.com/logo.png',
      source: 'home_page',
      source_updated_at: '2026-11-21T12:00:00.000Z',
    })
    companyResult.parse(company)
  })

  test.each([
    [{ minValue: 51, maxValue: 200 }, '51-200', null],
    [{ value: '120' }, '51-200', 120],
    [42, '11-50', 42],
    ['many', null, null],
    [{}, null, null],
  ])('numberOfEmployees %j', (numberOfEmployees, size, count) => {
    expect(onPage({ ...organization, numberOfEmployees })).toMatchObject({
      size_range: size,
      employee_count: count,
    })
  })

  test.each([[['https://schema.org/Organization']], [['Thing', 'LocalBusiness']], ['HardwareStore']])(
    '%j is an organization',
    (type) => {
      expect(onPage({ ...organization, '@type': type })?.name).toBe('Example')
    },
  )

  test.each([['Person'], ['WebSite'], ['Product'], [undefined], [7], ['Organizations']])(
    '%j is not an organization',
    (type) => {
      expect(onPage({ ...organization, '@type': type })).toBeNull()
    },
  )

  test.each([
    ['https://example.com'],
    ['http://shop.example.com/de'],
    ['/about'],
    [['https://EXAMPLE.com/']],
  ])('an organization at %j matches the domain', (url) => {
    expect(onPage({ ...organization, url })).not.toBeNull()
  })

  test.each([
    ['https://example.org/'],
    ['https://example.com.attacker.net/'],
    ['https://example.com@attacker.net/'],
    ['//attacker.net'],
    [undefined],
    [''],
    [{}],
  ])('an organization at %j belongs to another domain', (url) => {
    expect(onPage({ ...organization, url })).toBeNull()
  })

  test('without a url the @id counts; a blank node does not', () => {
    const bare = { '@type': 'Organization', name: 'Example' }
    expect(onPage({ ...bare, '@id': 'https://example.com/#organization' })).toMatchObject({
      website: 'https://www.example.com',
    })
    expect(onPage({ ...bare, '@id': '_:b0' })).toBeNull()
  })

  test('the organization of a site is found where the site names it; the most complete one wins', () => {
    const site = { '@type': 'WebSite', url: 'https://example.com/', publisher: organization }
    expect(onPage(site)?.name).toBe('Example')
    const fuller = { ...organization, name: 'Fuller', foundingDate: '1990' }
    expect(onPage(site, fuller)?.name).toBe('Fuller')
    expect(onPage(fuller, site)?.name).toBe('Fuller')
  })

  test('only the first fifty entries of a list are read, however long the page is', () => {
    const behind = <T>(count: number, last: T): unknown[] => [
      ...Array.from({ length: count }, () => 'x'),
      last,
    ]
    const linked = (count: number) =>
      onPage({ ...organization, sameAs: behind(count, 'https://www.linkedin.com/company/example/') })
    expect(linked(49)?.profnet_url).toBe('https://www.linkedin.com/company/example/')
    expect(linked(50)?.profnet_url).toBeNull()
    const published = (count: number) =>
      onPage({
        '@type': 'WebSite',
        publisher: behind(count, organization),
        about: behind(count, organization),
      })
    expect(published(49)?.name).toBe('Example')
    expect(published(50)).toBeNull()
  })

  test('an organization without a usable name is ignored', () => {
    expect(onPage({ ...organization, name: '' })).toBeNull()
    expect(onPage({ ...organization, name: 'x'.repeat(300) })).toBeNull()
    expect(onPage({ ...organization, name: null, legalName: 'Legal' })?.name).toBe('Legal')
  })

  test('values that are not addresses are left out', () => {
    expect(
      onPage({
        ...organization,
        logo: 'javascript:alert(1)',
        sameAs: { a: 1 },
        address: 'Somewhere 1',
        foundingDate: '2031',
      }),
    ).toMatchObject({
      logo_url: null,
      profnet_url: null,
      founded_year: null,
      location: { locality: null, region: null, country: null, country_code: null },
    })
  })
})

const html = (...nodes: object[]): Buffer =>
  Buffer.from(
    nodes.map((node) => `<script type="application/ld+json">${JSON.stringify(node)}</script>`).join(''),
  )
const pageOf = (url: string, body: Buffer, status = 200): PageAnswer => ({
  kind: 'page',
  status,
  headers: { 'content-type': 'text/html; charset=utf-8' },
  body,
  url,
})
const down: PageAnswer = { kind: 'unreachable', detail: 'ENOTFOUND' }

const over = (answers: Record<string, PageAnswer>) => {
  const asked: PageRequest[] = []
  let time = nowMs
  const fetchPage: FetchPage = async (request) => {
    asked.push(request)
    return answers[new URL(request.url).hostname] ?? down
  }
  const homePages = createHomePages({ fetchPage, userAgent: 'test', clock: { now: () => time } })
  const wait = (ms: number): void => {
    time += ms
  }
  return { homePages, answers, wait, hosts: () => asked.map(({ url }) => new URL(url).host), asked }
}
const hourMs = 3_600_000

describe('requesting home pages', () => {
  test('the domain itself is requested first, then its www, within one deadline', async () => {
    const { homePages, hosts, asked } = over({
      'www.example.com': pageOf('https://www.example.com/', html(organization)),
    })
    expect((await homePages.find('example.com'))?.name).toBe('Example')
    expect(hosts()).toEqual(['example.com', 'www.example.com'])
    expect(asked.every(({ url }) => url.startsWith('https://'))).toBe(true)
    const [first = { deadlineMs: 0 }, second = { deadlineMs: 0 }] = asked
    expect(first.deadlineMs).toBeLessThanOrEqual(5_000)
    expect(second.deadlineMs).toBeLessThanOrEqual(first.deadlineMs)
  })

  test('a domain that redirects to its www is requested once', async () => {
    const { homePages, hosts } = over({ 'example.com': pageOf('https://www.example.com/', html()) })
    expect(await homePages.find('example.com')).toBeNull()
    expect(hosts()).toEqual(['example.com'])
  })

  test('redirects to other domains, or to one without TLS, are not followed', async () => {
    const { homePages, asked } = over({})
    await homePages.find('example.com')
    const mayGo = (url: string) => asked[0]?.mayRedirectTo?.(new URL(url))
    expect(mayGo('https://shop.example.com/')).toBe(true)
    expect(mayGo('http://shop.example.com/')).toBe(false)
    expect(mayGo('http://example.com/')).toBe(false)
    expect(mayGo('https://example.org/')).toBe(false)
    expect(mayGo('http://127.0.0.1/')).toBe(false)
  })

  test('the data of a page, or its absence, is remembered for a day', async () => {
    for (const body of [html(organization), html()]) {
      const { homePages, hosts, wait } = over({
        'example.com': pageOf('https://example.com/', body),
        'www.example.com': pageOf('https://www.example.com/', body),
      })
      const first = await homePages.find('example.com')
      const visits = hosts().length
      wait(23 * hourMs)
      expect(await homePages.find('example.com')).toEqual(first)
      expect(hosts().length).toBe(visits)
      wait(2 * hourMs)
      await homePages.find('example.com')
      expect(hosts().length).toBe(2 * visits)
    }
  })

  test.each([
    ['unreachable', down],
    ['late', { kind: 'timeout', detail: 'deadline' } as const],
    ['in trouble', pageOf('https://example.com/', Buffer.alloc(0), 503)],
  ])(
    'a page that is %s counts as no company for now, and is requested again after ten minutes',
    async (_, answer) => {
      const { homePages, answers, wait } = over({ 'example.com': answer })
      expect(await homePages.find('example.com')).toBeNull()
      answers['example.com'] = pageOf('https://example.com/', html(organization))
      wait(9 * 60_000)
      expect(await homePages.find('example.com')).toBeNull()
      wait(2 * 60_000)
      expect((await homePages.find('example.com'))?.name).toBe('Example')
    },
  )

  test('a page that was not read in time is requested again after ten minutes, like one that could not be fetched', async () => {
    const { homePages, answers, wait } = over({})
    const page = pageOf('https://example.com/', html(organization))
    const now = performance.now.bind(performance)
    let lateMs = 0
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + lateMs)
    try {
      Object.defineProperty(answers, 'example.com', {
        configurable: true,
        // The answer arrives at the last moment of the call.
        get: () => {
          lateMs = 5_000
          return page
        },
      })
      expect(await homePages.find('example.com')).toBeNull()
    } finally {
      clock.mockRestore()
    }
    Object.defineProperty(answers, 'example.com', { value: page })
    wait(9 * 60_000)
    expect(await homePages.find('example.com')).toBeNull()
    wait(2 * 60_000)
    expect((await homePages.find('example.com'))?.name).toBe('Example')
  })

  test('pages with other statuses are not read', async () => {
    const { homePages } = over({ 'example.com': pageOf('https://example.com/', html(organization), 404) })
    expect(await homePages.find('example.com')).toBeNull()
  })

  test('a hundred callers for one domain cause one visit; too many domains at a time find no company, and are not remembered', async () => {
    const gate = Promise.withResolvers<void>()
    let visits = 0
    const homePages = createHomePages({
      fetchPage: async () => {
        visits++
        await gate.promise
        return down
      },
      userAgent: 'test',
    })
    const crowd = Array.from({ length: 100 }, () => homePages.find('example.com'))
    const others = Array.from({ length: 63 }, (_, i) => homePages.find(`n${i}.com`))
    expect(visits).toBe(64)
    expect(await homePages.find('one-more.com')).toBeNull()
    expect(visits).toBe(64)
    gate.resolve()
    await Promise.all([...crowd, ...others])
    const before = visits
    await homePages.find('one-more.com')
    expect(visits).toBeGreaterThan(before)
  })
})

describe('a page made to slow us down', () => {
  const cpuMs = async (run: () => unknown): Promise<number> => {
    const before = process.threadCpuUsage()
    await run()
    return process.threadCpuUsage(before).user / 1_000
  }

  test('120,000 spaces in a member do not block the main thread', async () => {
    const hostile = { ...organization, industry: `${' '.repeat(120_000)}x` }
    const { homePages } = over({ 'example.com': pageOf('https://example.com/', html(hostile)) })
    let company: CompanyResult | null = null
    const tookMs = await cpuMs(async () => {
      company = await homePages.find('example.com')
    })
    expect(company).toMatchObject({ name: 'Example', industry: null })
    expect(tookMs).toBeLessThan(1_000)
  })

  test.each([' ', '-', 'a ', '1-', '\u0301'])(
    'a record with %j repeated in every member and name is read quickly',
    async (piece) => {
      const text = `${piece.repeat(120_000)}!`
      const members = 'id name legal_name industry size employee_count founded locality region country logo'
      const record = Object.fromEntries(members.split(' ').map((member) => [member, text]))
      const tookMs = await cpuMs(() =>
        companyOf(
          {
            ...record,
            source_updated_at: text,
            source: text,
            domain: 'example.com',
            website: text,
            [text]: text,
          },
          { source: 'test', sourceUpdatedAt: '2026-11-21T12:00:00.000Z', yearMax: 2026 },
        ),
      )
      expect(tookMs).toBeLessThan(300)
    },
  )
})
