import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { declaredMapping } from '../../src/capabilities/profile/mapping/declared.ts'
import {
  answerOfStatus,
  attemptsMax,
  createHttpProvider,
  credentials,
  expandTemplate,
  type FetchPage,
  forbiddenInARowMax,
  parseTemplate,
  retryAfterSeconds,
  retryAfterSecondsMax,
} from '../../src/capabilities/profile/sources/http-provider.ts'
import type { ProfileRef, ProviderAnswer } from '../../src/capabilities/profile/sources/provider.ts'
import { createEgressGuard } from '../../src/egress/guard.ts'
import { fetchBounded } from '../../src/egress/page.ts'
import { profileUpstream } from '../support/profile-upstream.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const talvora: ProfileRef = { kind: 'lid', value: 'talvora' }
const person = { lid: 'talvora', urn: '12', firstname: 'Talvora', lastname: 'Quill' }

const fetchPage: FetchPage = (request) =>
  fetchBounded(request, {
    guard: createEgressGuard({ allow: ['127.0.0.0/8'] }),
    resolveHost: async (host) => ({ addresses: [host], code: null }),
  })

let alarms: object[]
const upstream = await profileUpstream()
afterAll(() => upstream.close())
beforeEach(() => {
  alarms = []
})

const logger = { error: (fields: object) => void alarms.push(fields), warn: () => undefined }

const provider = (more: Partial<Parameters<typeof createHttpProvider>[0]> = {}) =>
  createHttpProvider({
    url: `${upstream.url}/people/{lid}?urn={urn}`,
    key: null,
    rewrite: null,
    identifiers,
    fetchPage,
    clock: { now: () => performance.now(), epochMs: () => Date.now() },
    logger,
    ...more,
  })

const ask = (
  one = provider(),
  ref = talvora,
  { ageMaxMs = null, withinMs = 3_000 }: { ageMaxMs?: number | null; withinMs?: number } = {},
): Promise<ProviderAnswer> =>
  one.fetch(ref, { deadlineMs: performance.now() + withinMs, ageMaxMs, signal: new AbortController().signal })

describe('the request', () => {
  test('is built from the template and the canonical identifier, encoded', async () => {
    upstream.answers(() => ({ body: person }))
    await ask(provider(), { kind: 'lid', value: 'j|ürgen' })
    await ask(provider(), { kind: 'urn', value: '12' })
    expect(upstream.requests.map(({ path }) => path)).toEqual([
      '/people/j%7C%C3%BCrgen?urn=',
      '/people/?urn=12',
    ])
    expect(provider().supports?.({ kind: 'urn', value: '1' })).toBe(true)
    expect(provider({ url: 'https://a.example/{lid}' }).supports?.({ kind: 'urn', value: '1' })).toBe(false)
  })

  test('carries the key, and limits the age of the answer for caches', async () => {
    upstream.answers(() => ({ body: person }))
    await ask(provider({ key: 'secret' }), talvora, { ageMaxMs: 60_000 })
    await ask(provider({ key: 'X-Api-Key: secret' }))
    expect(upstream.requests.map(({ headers }) => headers)).toMatchObject([
      { authorization: 'Bearer secret', 'cache-control': 'max-age=60' },
      { 'x-api-key': 'secret' },
    ])
    expect(upstream.requests[1]?.headers).not.toHaveProperty('cache-control')
    expect(() => credentials('a\nb')).toThrow(/characters/)
  })

  test.each([
    'not a url',
    'https://a.example/people',
    'https://{lid}.example/people',
    'https://a.example:{urn}/people',
    'https://user:secret@a.example/{lid}',
  ])('a template of %j is refused', (url) => {
    expect(() => parseTemplate(url)).toThrow(TypeError)
  })

  test('an identifier is always one path segment', () => {
    expect(expandTemplate('https://a.example/p/{lid}', { kind: 'lid', value: '../x?y#z' })).toBe(
      'https://a.example/p/..%2Fx%3Fy%23z',
    )
  })
})

describe('the answer', () => {
  test.each([
    ['our own members', person],
    ['our own envelope', { result: person, request_id: 'x' }],
  ])('in %s is found', async (_, body) => {
    upstream.answers(() => ({ body }))
    expect(await ask()).toMatchObject({
      kind: 'found',
      ids: { lid: 'talvora', urn: '12' },
      data: { firstname: 'Talvora', lastname: 'Quill' },
      redirected: false,
    })
  })

  test('in a declared shape is found', async () => {
    upstream.answers(() => ({ body: { who: { slug: 'Talvora', first: 'Talvora' } } }))
    const rewrite = declaredMapping({ root: 'who', lid: 'slug', firstname: 'first' })
    expect(await ask(provider({ rewrite }))).toMatchObject({
      kind: 'found',
      ids: { lid: 'talvora', urn: null },
      data: { firstname: 'Talvora' },
    })
  })

  test.each([
    [{ status: 404 }, { kind: 'not_found' }],
    [{ status: 410 }, { kind: 'gone' }],
    [{ body: { lid: 'talvora', deleted: true } }, { kind: 'gone' }],
    [{ status: 403 }, { kind: 'inaccessible' }],
    [{ status: 451 }, { kind: 'inaccessible' }],
    [{ status: 429 }, { kind: 'rate_limited', retryAfterSeconds: null }],
    [{ status: 202 }, { kind: 'transient' }],
    [{ status: 400 }, { kind: 'malformed' }],
    [{ status: 204 }, { kind: 'malformed' }],
    [{ body: 'garbage{' }, { kind: 'malformed' }],
    [{ body: [1, 2] }, { kind: 'malformed' }],
    [{ body: null }, { kind: 'malformed' }],
    [{ body: person, headers: { 'content-encoding': 'gzip' } }, { kind: 'transient' }],
    [{ body: { lid: '../x', firstname: 'Talvora' } }, { kind: 'malformed', detail: 'no profile id' }],
    [{ body: { lid: 'talvora' } }, { kind: 'malformed', detail: 'an empty profile' }],
  ])('%j is %j', async (answer, expected) => {
    upstream.answers(() => answer)
    expect(await ask()).toMatchObject(expected)
  })

  test("about another person is returned with that person's ids, and not marked as redirected", async () => {
    upstream.answers(() => ({ body: { ...person, lid: 'somebody-else', urn: '99' } }))
    expect(await ask()).toMatchObject({ ids: { lid: 'somebody-else', urn: '99' }, redirected: false })
  })

  test('an endless body is abandoned, and little of it is kept', async () => {
    upstream.answers(() => 'endless')
    const before = process.memoryUsage().rss
    expect(await ask()).toEqual({ kind: 'malformed', detail: 'too_large wire' })
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024)
  })
})

describe('renames and redirects', () => {
  const renamed = { ...person, lid: 'talvora-quill' }

  test('a redirect to an address with the new name confirms the rename', async () => {
    upstream.answers(({ path }) =>
      path.startsWith('/people/talvora-quill')
        ? { body: renamed }
        : { status: 301, headers: { location: '/people/talvora-quill' } },
    )
    expect(await ask()).toMatchObject({ kind: 'found', ids: { lid: 'talvora-quill' }, redirected: true })
  })

  test('a redirect to an address without a name, or with the requested name, does not', async () => {
    upstream.answers(({ path }, index) =>
      index % 2 === 1
        ? { body: renamed }
        : { status: 301, headers: { location: path.includes('again') ? '/x' : '/en/people/talvora' } },
    )
    expect(await ask()).toMatchObject({ ids: { lid: 'talvora-quill' }, redirected: false })
    const other = await ask(provider({ url: `${upstream.url}/again/{lid}` }))
    expect(other).toMatchObject({ ids: { lid: 'talvora-quill' }, redirected: false })
  })

  test('a body that lists the requested id as a former one confirms the rename', async () => {
    upstream.answers(() => ({ body: { ...renamed, former_lids: ['Talvora'] } }))
    expect(await ask()).toMatchObject({ ids: { lid: 'talvora-quill' }, redirected: true })
  })

  test.each([
    'http://127.0.0.2/people/talvora',
    'http://169.254.169.254/latest/meta-data',
    'https://elsewhere.example/people/talvora',
    'file:///etc/passwd',
  ])('a redirect to %s is not followed', async (location) => {
    upstream.answers(() => ({ status: 302, headers: { location } }))
    expect(await ask()).toEqual({ kind: 'malformed', detail: 'refused redirect' })
    expect(upstream.requests).toHaveLength(1)
  })

  test('a redirect loop ends', async () => {
    upstream.answers(({ path }) => ({ status: 302, headers: { location: path } }))
    expect(await ask()).toEqual({ kind: 'malformed', detail: 'too_many_redirects' })
    expect(upstream.requests).toHaveLength(4)
  })
})

describe("the source's own age", () => {
  const now = Date.UTC(2026, 10, 21, 12)
  const clock = { now: () => performance.now(), epochMs: () => now }
  const dated = (age: number) => new Date(now - age).toUTCString()
  const hour = 3_600_000

  test.each([
    ['nothing', {}, {}, 0],
    ['a member', { observed_at: new Date(now - hour).toISOString() }, {}, hour],
    ['Age', {}, { age: '120', date: dated(0) }, 120_000],
    ['Date', {}, { date: dated(hour) }, hour],
    ['Age and Date, of which the older counts', {}, { age: '5', date: dated(hour) }, hour],
    ['a Date within the tolerance between clocks', {}, { date: dated(1_000) }, 0],
    ['a time in the future', { observed_at: new Date(now + hour).toISOString() }, {}, 0],
  ])('from %s', async (_, more, headers, ageMs) => {
    upstream.answers(() => ({ body: { ...person, ...more }, headers: { date: dated(0), ...headers } }))
    const answer = await ask(provider({ clock }))
    expect(answer).toMatchObject({ kind: 'found', observedAtMs: now - ageMs })
  })

  test('from our own envelope', async () => {
    const body = { result: person, cached: true, cache_age_hours: 2 }
    upstream.answers(() => ({ body, headers: { date: dated(0) } }))
    expect(await ask(provider({ clock }))).toMatchObject({ observedAtMs: now - 2 * hour })
  })

  test('data older than requested is not used, even if the source calls it fresh', async () => {
    const headers = { date: dated(0), age: '61' }
    upstream.answers(() => ({ body: person, headers }))
    expect(await ask(provider({ clock }), talvora, { ageMaxMs: 60_000 })).toEqual({
      kind: 'malformed',
      detail: 'older than asked for',
    })
    expect(await ask(provider({ clock }), talvora, { ageMaxMs: 61_000 })).toMatchObject({ kind: 'found' })
  })
})

describe('a source that fails', () => {
  test.each([502, 503, 504])('with %i is asked once more', async (status) => {
    upstream.answers((_, index) => (index === 0 ? { status } : { body: person }))
    expect(await ask()).toMatchObject({ kind: 'found' })
    upstream.answers(() => ({ status }))
    expect(await ask()).toEqual({ kind: 'transient', detail: `status ${status}` })
    expect(upstream.requests).toHaveLength(attemptsMax)
  })

  test('with a Retry-After is not asked earlier', async () => {
    upstream.answers(() => ({ status: 503, headers: { 'retry-after': '90' } }))
    expect(await ask()).toEqual({ kind: 'transient', detail: 'status 503', retryAfterSeconds: 90 })
    expect(upstream.requests).toHaveLength(1)
  })

  test("each attempt gets the rest of the call's time, to the millisecond", async () => {
    const given: number[] = []
    let nowMs = 0
    const one = provider({
      fetchPage: async ({ deadlineMs }) => {
        given.push(deadlineMs)
        nowMs += 2_500
        return { kind: 'unreachable', detail: 'ECONNRESET' }
      },
      clock: { now: () => nowMs, epochMs: () => Date.now() },
    })
    await one.fetch(talvora, { deadlineMs: 7_900, ageMaxMs: null, signal: new AbortController().signal })
    expect(given).toEqual([7_900, 5_400])
  })

  test.each([500, 404, 429, 401])('with %i is not asked again', async (status) => {
    upstream.answers(() => ({ status }))
    await ask()
    expect(upstream.requests).toHaveLength(1)
  })

  test.each([
    ['the deadline of the call', {}, 150],
    ['its own time', { timeoutMs: 150 }, 8_000],
  ])('by not answering is abandoned after %s', async (_, more, withinMs) => {
    upstream.answers(() => 'silence')
    const asked = ask(provider(more), talvora, { withinMs })
    expect(await takesAtMost(1_500, asked)).toMatchObject({ kind: 'transient' })
    expect(upstream.requests).toHaveLength(1)
  })

  test.each([401, 402, 407])(
    'by refusing our key with %i hides no person, and raises an alarm',
    async (status) => {
      upstream.answers(() => ({ status }))
      const one = provider({ key: 'secret' })
      for (let count = 0; count < 3; count++) expect(await ask(one)).toMatchObject({ kind: 'transient' })
      expect(alarms).toEqual([{ provider: 'http', status }])
    },
  )

  test('by answering 403 for everyone has locked us out, until it serves a person again', async () => {
    const one = provider()
    upstream.answers(() => ({ status: 403 }))
    const kinds = async (count: number) => {
      const all: string[] = []
      for (let index = 0; index < count; index++) all.push((await ask(one)).kind)
      return all
    }
    const expected = [
      ...Array.from({ length: forbiddenInARowMax - 1 }, () => 'inaccessible'),
      'transient',
      'transient',
    ]
    expect(await kinds(forbiddenInARowMax + 1)).toEqual(expected)
    expect(alarms).toHaveLength(1)
    upstream.answers(() => ({ body: person }))
    expect(await kinds(1)).toEqual(['found'])
    upstream.answers(() => ({ status: 403 }))
    expect(await kinds(1)).toEqual(['inaccessible'])
  })
})

describe('Retry-After', () => {
  const now = Date.UTC(2026, 10, 21, 12)
  test.each([
    ['17', 17],
    ['999999', retryAfterSecondsMax],
    [new Date(now - 30_000).toUTCString(), 1],
    ['-5', null],
    ['', null],
  ])('of %j is %j seconds', (header, seconds) => {
    expect(retryAfterSeconds(header, now)).toBe(seconds)
  })

  test('some networks use 999 for 429', () => {
    const page = { kind: 'page', status: 999, headers: {}, body: Buffer.alloc(0), url: 'u' } as const
    expect(answerOfStatus(page, now)).toEqual({ kind: 'rate_limited', retryAfterSeconds: null })
  })
})
