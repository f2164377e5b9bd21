/** The event log in the dashboard: pages of limited size, decoded events, recomputed chains, and events that could break a page. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { changeEvent, recordedEvents } from '../support/segments.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let scene: Scene
let owner: pg.Client

beforeAll(async () => {
  room = await openDashboardHost()
  owner = new pg.Client({ connectionString: room.url })
  await owner.connect()
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  scene = await openScene(room, { nowMs: Date.now(), days: 8 })
})
afterAll(async () => {
  await owner?.end()
  await room?.close()
})

const stream = () => ledgerStream(scene.organizationId)
const hrefs = (body: string, pattern: RegExp): string[] =>
  [...body.matchAll(/href="([^"]+)"/g)]
    .map(([, href = '']) => href.replaceAll('&amp;', '&'))
    .filter((href) => pattern.test(href))
const at = (revision: number, of = stream()): string => `/events/streams/${of}/${revision}`
const eventRows = /^\/events\/streams\/[^/]+\/\d+$/
const older = (body: string): string | undefined => hrefs(body, /before=/)[0]

/** Collects every event, page by page. */
const walked = async (start: string): Promise<string[]> => {
  const seen: string[] = []
  for (let next: string | undefined = start; next !== undefined; ) {
    const { body, statusCode } = await ada.get(next)
    expect(statusCode).toBe(200)
    const found = hrefs(body, eventRows)
    expect(found.length).toBeLessThanOrEqual(50)
    seen.push(...found)
    next = older(body)
  }
  return seen
}

describe('the newest events', () => {
  test("are shown in pages, the newest first, each once, up to the log's first event", async () => {
    const all = await recordedEvents(owner)
    const before = all.length
    const seen = await walked('/events')
    const expected = all.toReversed().map(({ stream: of, revision }) => at(revision, of))
    // Sign-ins and the projector's jobs can have added events.
    expect(seen.slice(-before)).toEqual(expected)
    expect(before).toBeGreaterThan(100)
  })

  test('can be limited to one type, among all others', async () => {
    const all = await recordedEvents(owner)
    const expected = all.filter(({ type }) => type === 'CreditGranted').toReversed()
    expect(await walked('/events?type=CreditGranted')).toEqual(
      expected.map((event) => at(event.revision, event.stream)),
    )
    const none = await ada.get('/events?type=NeverHappened')
    expect(none.body).toContain('The type NeverHappened does not occur')
  })

  test('can be limited to one stream, with its own URL', async () => {
    const led = await ada.get(`/events?stream=${stream()}&type=CreditGranted`)
    expect({ status: led.statusCode, to: led.headers.location }).toEqual({
      status: 303,
      to: `/events/streams/${stream()}?type=CreditGranted`,
    })
    const last = Number(await room.foundation.eventLog.lastRevision(stream()))
    const expected = Array.from({ length: last + 1 }, (_, i) => at(last - i))
    expect(await walked(`/events/streams/${stream()}`)).toEqual(expected)
    expect(await walked(`/events/streams/${stream()}?type=CreditGranted`)).toHaveLength(3)
  })

  test('an invalid name of a stream or a type is reported next to the field', async () => {
    for (const query of [
      'stream=%00',
      'stream=a%2Fb',
      `stream=${'x'.repeat(4_000)}`,
      'type=%3Cb%3E',
      'type=%00',
    ]) {
      const { statusCode, body } = await ada.get(`/events?${query}`)
      expect([query.slice(0, 20), statusCode]).toEqual([query.slice(0, 20), 422])
      expect(body).toContain('role="alert"')
      expect(body).not.toContain('<b>')
    }
  })

  test('an impossible URL is a missing page', async () => {
    const long = 'a'.repeat(5_000)
    for (const path of [
      ...[
        '/events?before=x',
        '/events?before=-1',
        `/events?before=${'9'.repeat(40)}`,
        '/events?before=9999999999999999999',
      ],
      ...[
        '/events/at/%00',
        '/events/at/9999999999999999999',
        '/events/at/999999999999',
        '/events/at/0',
        '/events/at/1e3',
      ],
      ...[
        '/events/streams/%00',
        '/events/streams/ledger-%2F..%2F',
        '/events/streams/%24all',
        `/events/streams/${long}`,
      ],
      ...[
        '/events/streams/ledger-nothing',
        '/events/streams/%E0%A4%A',
        `/events/streams/${encodeURIComponent("x' or 1=1")}`,
      ],
      ...[
        at(99_999),
        `/events/streams/${stream()}/-1`,
        `/events/streams/${stream()}/${'9'.repeat(30)}`,
        `${at(0)}%00`,
      ],
      ...[`/events/streams/${stream()}?before=1.5`, `/events/streams/${stream()}?type=%00`],
    ]) {
      const { statusCode } = await ada.get(path)
      expect([path.slice(0, 60), [400, 404].includes(statusCode)]).toEqual([path.slice(0, 60), true])
    }
  })
})

describe('one event', () => {
  test('is shown with its envelope, its data, and its related events', async () => {
    const events = await room.foundation.eventLog.read(stream(), { from: 0, max: 1_000 })
    const charge = events.find(({ type }) => type === 'CreditCharged')
    const { request_id: request } = JSON.parse(charge?.metadata ?? '{}')
    const revision = charge?.revision ?? 0
    const { body, statusCode } = await ada.get(at(revision))
    expect(statusCode).toBe(200)
    expect(body).toContain('&quot;charge_id&quot;: &quot;')
    expect(body).toContain(`<a href="/organizations/${scene.organizationId}/calls/${request}">${request}</a>`)
    expect(body).toContain(`<a href="/organizations/${scene.organizationId}">`)
    // The page links to the previous event, which is the call that caused this event, and to the next event.
    expect(body).toContain(`<a href="${at(revision - 1)}">KeyUsed, revision`)
    expect(hrefs(body, eventRows)).toContain(at(revision + 1))
    expect(body).toContain('<span class="mark good">holds</span>')
    const found = await ada.get(`/events/at/${charge?.position}`)
    expect({ status: found.statusCode, to: found.headers.location }).toEqual({
      status: 303,
      to: at(revision),
    })
  })
})

describe('any content in the log', () => {
  const envelope = (version: unknown): string =>
    JSON.stringify({
      ...{ schema_version: version, actor: 'cli', effective_at: '2026-01-01T00:00:00.000Z' },
      ...{ recorded_at: '2026-01-01T00:00:00.000Z', digest: 'D'.repeat(43) },
    })
  let made = 0
  const written = async (type: string, data: string, metadata: string): Promise<string> => {
    const own = `key-hostile${++made}`
    const id = `00000000-0000-4000-8000-${String(made).padStart(12, '0')}`
    await room.foundation.eventLog.append(own, 'none', [{ id, type, data, metadata }])
    const { body, statusCode } = await ada.get(at(0, own))
    expect(statusCode).toBe(200)
    expect((await ada.get(`/events/streams/${own}`)).statusCode).toBe(200)
    expect((await ada.get('/events')).statusCode).toBe(200)
    return body
  }

  test.each([
    [
      'of a type of a later release',
      'CreditBorrowed',
      '{"a":1}',
      envelope(1),
      'its type is not in the catalogue',
    ],
    ['of a later version', 'CreditGranted', '{"a":1}', envelope(9), 'it has version 9'],
    ['of other software', 'OrderPlaced', '{"a":1}', '{"x":1}', 'other software wrote it'],
    ['with no JSON', 'CreditGranted', 'not json <b>', envelope(1), 'its data is not JSON'],
    ['with metadata that are no JSON', 'CreditGranted', '{}', 'nothing <i>', 'other software wrote it'],
    ['with a version that is none', 'CreditGranted', '{}', envelope('x'), 'its metadata is not valid'],
    [
      'with data of another type',
      'CreditGranted',
      '{"amount":1}',
      envelope(1),
      'its data does not match version 1',
    ],
    ['with an array', 'CreditGranted', '[]', envelope(1), 'its data does not match version 1'],
  ])('an event %s is shown as stored, with the reason', async (_, type, data, metadata, why) => {
    const body = await written(type, data, metadata)
    expect(body).toContain(why)
    expect(body).toContain('Its data is shown in its stored form.')
    expect(body).toContain(data.replaceAll('"', '&quot;').replaceAll('<', '&lt;').replaceAll('>', '&gt;'))
    expect(body).not.toMatch(/<b>|<i>/)
  })

  test('characters that change the reading direction or move a cursor are replaced by visible text', async () => {
    const body = await written('Unheard', '{"a":"x\u202Ey\u0000z\u001b[2J"}', envelope(1))
    expect(body).toContain('x\\u202ey\\u0000z\\u001b[2J')
    for (const character of ['\u202E', '\u0000', '\u001b']) expect(body).not.toContain(character)
  })

  test('a megabyte is truncated, with a note', async () => {
    const body = await written('Unheard', JSON.stringify({ a: 'x'.repeat(900_000) }), envelope(1))
    expect(body).toContain('Only the first 65,536 of 900,008 characters are shown.')
    expect(body.length).toBeLessThan(100_000)
  })
})

describe('a broken chain', () => {
  test('is reported at its revision, in the list and on the page, and the rest of the page does not change', async () => {
    const { organizationId } = await openScene(room, { nowMs: Date.now(), days: 1, name: 'Broken' })
    const own = ledgerStream(organizationId)
    await changeEvent(owner, { stream: own, revision: 2 }, ({ data }) => ({
      data: data.replace('"300.5"', '"900.5"'),
    }))
    const list = await ada.get(`/events/streams/${own}`)
    expect(list.statusCode).toBe(200)
    expect(list.body).toContain('The chain is broken at revision 2: its bytes do not match its digest')
    expect(list.body.match(/<span class="mark bad">broken/g)).toHaveLength(1)
    expect((await ada.get(at(2, own))).body).toContain('The chain is broken at revision 2')
    // The next event still has the digest from before the change.
    expect((await ada.get(at(3, own))).body).not.toContain('is broken')
    // If the digest is recomputed, the chain breaks at the next event.
    const [event] = await room.foundation.eventLog.read(own, { from: 2, max: 1 })
    const metadata = event?.metadata.replace(
      /"digest":"./,
      (text) => `${text.slice(0, -1)}${text.endsWith('A') ? 'B' : 'A'}`,
    )
    await changeEvent(owner, { stream: own, revision: 2 }, () => ({ metadata: metadata ?? '' }))
    expect((await ada.get(at(2, own))).body).toContain('The chain is broken at revision 3')
  })

  test('with a row that cannot be unpacked is shown up to there, and continues after that row', async () => {
    const { organizationId } = await openScene(room, { nowMs: Date.now(), days: 1, name: 'Damaged' })
    const own = ledgerStream(organizationId)
    const bad = Number(await room.foundation.eventLog.lastRevision(own)) + 2
    // The events are appended one after the other, so that each is in a separate row.
    for (const reason of ['before', 'damaged', 'after'])
      await grant(room.foundation, {
        ...{ organizationId, reason, priority: 1, expiresAt: null, actor: 'cli:setup' },
        amount: parseCredits('1'),
      })
    const [{ position } = { position: 0n }] = await room.foundation.eventLog.read(own, { from: bad, max: 1 })
    await owner.query(`update log_segments set events = 'x' where last_position = $1`, [String(position)])
    for (const path of [`/events/streams/${own}`, at(bad, own), `/events/at/${position}`]) {
      const { body, statusCode } = await ada.get(path)
      expect([path, statusCode]).toEqual([path, 200])
      expect(body).toMatch(new RegExp(`revision ${bad} of ledger-\\w+ cannot be opened`))
    }
    const seen = await walked(`/events/streams/${own}`)
    expect(seen).toContain(at(bad + 1, own))
    expect(seen).toContain(at(bad - 1, own))
    expect(seen).not.toContain(at(bad, own))
    expect((await ada.get(at(bad + 1, own))).body).toContain('the event before it could not be read')
    expect((await ada.get('/events')).statusCode).toBe(200)
  })
})

test('a partner is refused, and its own pages have no link to the event log', async () => {
  const { password } = await createUser(room.foundation, {
    ...{ name: 'partner', role: 'partner', organizationId: scene.organizationId, actor: 'cli:setup' },
  })
  const partner = await signedIn(room, { name: 'partner', password })
  for (const path of ['/events', `/events/streams/${stream()}`, at(0), '/events/at/1', '/events/streams/%00'])
    expect([path, (await partner.get(path)).statusCode]).toEqual([path, 403])
  const call = await partner.get(`/organizations/${scene.organizationId}/calls/${scene.requestId}`)
  expect(call.statusCode).toBe(200)
  expect(hrefs(call.body, /^\/events/)).toEqual([])
})
