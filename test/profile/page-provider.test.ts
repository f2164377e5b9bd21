import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import type { FetchPage } from '../../src/capabilities/profile/sources/http-provider-attempts.ts'
import { createPageProvider } from '../../src/capabilities/profile/sources/page-provider.ts'
import type { ProfileRef, ProviderAnswer } from '../../src/capabilities/profile/sources/provider.ts'
import { createEgressGuard } from '../../src/egress/guard.ts'
import { type ReadJsonLd, readJsonLd } from '../../src/egress/json-ld.ts'
import { readPage } from '../../src/egress/json-ld-page.ts'
import { fetchBounded } from '../../src/egress/page.ts'
import { type ProfileUpstream, profileUpstream } from '../support/profile-upstream.ts'

const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const talvora: ProfileRef = { kind: 'lid', value: 'talvora' }
const person = { '@context': 'https://schema.org', '@type': 'Person', name: 'Talvora Quill' }
const named = (lid: string) => ({ ...person, url: `https://www.profnet.com/in/${lid}` })

const fetchPage: FetchPage = (request) =>
  fetchBounded(request, {
    guard: createEgressGuard({ allow: ['127.0.0.0/8'] }),
    resolveHost: async (host) => ({ addresses: [host], code: null }),
  })

/** Without the worker thread, which takes longer to start than the rest of a test. */
const readHere = (async (html, { charset = null, reader }) => {
  const { read } = await import(reader.module.href)
  return readPage({ html: new Uint8Array(html), charset }, (nodes) => read(nodes, reader.input))
}) as ReadJsonLd

let upstream: ProfileUpstream
beforeAll(async () => {
  upstream = await profileUpstream()
})
afterAll(() => upstream.close())

const provider = (more: Partial<Parameters<typeof createPageProvider>[0]> = {}) =>
  createPageProvider({
    url: `${upstream.url}/in/{lid}`,
    identifiers,
    fetchPage,
    readJsonLd: readHere,
    clock: { now: () => performance.now(), epochMs: () => Date.now() },
    logger: { error: () => undefined, warn: () => undefined },
    ...more,
  })

const ask = (one = provider(), ref = talvora): Promise<ProviderAnswer> =>
  one.fetch(ref, {
    deadlineMs: performance.now() + 60_000,
    ageMaxMs: null,
    signal: new AbortController().signal,
  })

const html = (...blocks: unknown[]) => ({
  headers: { 'content-type': 'text/html; charset=utf-8' },
  body: `<!doctype html><title>x</title>${blocks
    .map(
      (block) =>
        `<script type="application/ld+json">${typeof block === 'string' ? block : JSON.stringify(block)}</script>`,
    )
    .join('')}<p>text`,
})

describe('a public page', () => {
  test.each([
    ['as a person', person],
    ['as a person with the address of the profile', named('Talvora')],
    ['in a list', [{ '@type': 'WebSite' }, person]],
    ['in a graph', { '@graph': [{ '@type': 'WebPage' }, person] }],
    ['as the main entity of the page', { '@type': 'ProfilePage', mainEntity: person }],
  ])('that describes a person %s is read', async (_, block) => {
    upstream.answers(() => html(block))
    expect(await ask()).toMatchObject({
      kind: 'found',
      ids: { lid: 'talvora', urn: null },
      data: { firstname: 'Talvora', lastname: 'Quill', numOfConnections: null },
      redirected: false,
    })
    expect(upstream.requests[0]?.path).toBe('/in/talvora')
  })

  test('that also shows other people returns the requested person', async () => {
    const other = { ...named('brax-hatch'), name: 'Brax Hatch' }
    upstream.answers(() => html(other, named('talvora')))
    expect(await ask(provider({ readJsonLd }))).toMatchObject({
      ids: { lid: 'talvora' },
      data: { firstname: 'Talvora' },
    })
  })

  test('that shows several people without a main entity returns no one', async () => {
    upstream.answers(() => html(person, { ...person, name: 'Brax Hatch' }))
    expect(await ask()).toEqual({ kind: 'malformed', detail: 'several persons in the page' })
  })

  test("of another person is returned with that person's ids", async () => {
    upstream.answers(() => html(named('brax-hatch')))
    expect(await ask()).toMatchObject({ ids: { lid: 'brax-hatch' }, redirected: false })
  })

  test('that moved gets the new name from its address', async () => {
    upstream.answers(({ path }) =>
      path === '/in/talvora' ? { status: 301, headers: { location: '/in/talvora-quill' } } : html(person),
    )
    expect(await ask()).toMatchObject({ ids: { lid: 'talvora-quill' }, redirected: true })
  })

  test('that moved to an address without a name returns no one', async () => {
    upstream.answers(({ path }) =>
      path === '/in/talvora' ? { status: 302, headers: { location: '/welcome' } } : html(person),
    )
    expect(await ask()).toEqual({ kind: 'malformed', detail: 'no profile id' })
  })

  test.each([
    ['without JSON-LD', html(), 'JSON-LD: none'],
    ['with JSON-LD that is not JSON', html('{'), 'JSON-LD: malformed'],
    ['about an organization', html({ '@type': 'Organization', name: 'Nimbrel' }), 'no person in the page'],
    ['with only masked values', html({ ...person, name: '****** *****' }), 'an empty profile'],
    ['that is none', { body: person }, 'refused content_type'],
  ])('%s is malformed', async (_, answer, detail) => {
    upstream.answers(() => answer)
    expect(await ask()).toEqual({ kind: 'malformed', detail })
  })

  test.each([
    [404, { kind: 'not_found' }],
    [410, { kind: 'gone' }],
    [403, { kind: 'inaccessible' }],
    [999, { kind: 'rate_limited', retryAfterSeconds: null }],
    [500, { kind: 'transient', detail: 'status 500' }],
  ])('with status %i is %j', async (status, expected) => {
    upstream.answers(() => ({ status }))
    expect(await ask()).toEqual(expected)
  })

  test('gets all of the time its call has left, and its Retry-After is returned', async () => {
    const given: number[] = []
    const fetched: FetchPage = async ({ deadlineMs, url }) => {
      given.push(deadlineMs)
      return { kind: 'page', status: 503, headers: { 'retry-after': '90' }, body: Buffer.alloc(0), url }
    }
    const one = provider({ fetchPage: fetched, clock: { now: () => 0, epochMs: () => 0 } })
    const signal = new AbortController().signal
    const asked = { deadlineMs: 7_900, ageMaxMs: null, signal }
    expect(await one.fetch(talvora, asked)).toEqual({
      kind: 'transient',
      detail: 'status 503',
      retryAfterSeconds: 90,
    })
    expect(given).toEqual([7_900])
  })

  test('that takes too long to read is abandoned', async () => {
    upstream.answers(() => html(person))
    const readJsonLd = async () => ({ kind: 'too_slow' }) as const
    expect(await ask(provider({ readJsonLd }))).toMatchObject({ kind: 'transient' })
  })

  test('cannot be looked up by number', async () => {
    expect(provider().supports({ kind: 'urn', value: '12' })).toBe(false)
    upstream.answers(() => html(person))
    expect(await ask(provider(), { kind: 'urn', value: '12' })).toEqual({ kind: 'unsupported' })
    expect(upstream.requests).toEqual([])
  })

  test('needs a template with the id in it', () => {
    expect(() => provider({ url: 'https://www.profnet.com/in/{urn}' })).toThrow(/\{lid\}/)
  })
})
