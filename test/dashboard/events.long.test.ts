/** The event log in the dashboard: pages of limited size, decoded events, recomputed chains, and events that could break a page. */
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { changeEvent, recordedEvents } from '../support/segments.ts'
import { browserOfAda, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene } from './scene.ts'

const room = await openDashboardHost()
const owner = new pg.Client({ connectionString: room.url })
await owner.connect()
const ada = await browserOfAda(room)
const scene = await openScene(room, { nowMs: Date.now(), days: 8 })
afterAll(async () => {
  await owner.end()
  await room.close()
})

const stream = () => ledgerStream(scene.organizationId)
const hrefs = (body: string, pattern: RegExp): string[] =>
  [...body.matchAll(/href="([^"]+)"/g)]
    .map(([, href = '']) => href.replaceAll('&amp;', '&'))
    .filter((href) => pattern.test(href))
const list = (query: Record<string, string>): string =>
  `/commands/event-log/list?${new URLSearchParams(query).toString()}`
const at = (revision: number, of = stream()): string =>
  `/commands/event-log/show?${new URLSearchParams({ stream: of, revision: String(revision) }).toString()}`
const eventRows = /^\/events\/at\/\d+$/
const next = (body: string): string | undefined => hrefs(body, /cursor=/)[0]

/** Collects the position of every event, page by page. */
const walked = async (start: string): Promise<string[]> => {
  const seen: string[] = []
  for (let page: string | undefined = start; page !== undefined; ) {
    const { body, statusCode } = await ada.get(page)
    expect(statusCode).toBe(200)
    const found = hrefs(body, eventRows)
    expect(found.length).toBeLessThanOrEqual(100)
    seen.push(...found.map((href) => href.split('/').at(-1) ?? ''))
    page = next(body)
  }
  return seen
}

const positionsOf = (events: readonly { readonly position: bigint }[]): string[] =>
  events.map(({ position }) => String(position)).toReversed()

describe('the newest events', () => {
  test("are shown in pages, the newest first, each once, up to the log's first event", async () => {
    const all = await recordedEvents(owner)
    const seen = await walked(list({}))
    // Sign-ins and the projector's jobs can have added events.
    expect(seen.slice(-all.length)).toEqual(positionsOf(all))
    expect(all.length).toBeGreaterThan(100)
  })

  test('can be limited to one type, among all others', async () => {
    const all = await recordedEvents(owner)
    const expected = all.filter(({ type }) => type === 'CreditGranted')
    expect(await walked(list({ type: 'CreditGranted' }))).toEqual(positionsOf(expected))
    expect((await ada.get(list({ type: 'ProfileErased' }))).body).toContain('No entries')
  })

  test('can be limited to one stream', async () => {
    const own = (await recordedEvents(owner)).filter((event) => event.stream === stream())
    expect(await walked(list({ stream: stream() }))).toEqual(positionsOf(own))
    expect(await walked(list({ stream: stream(), type: 'CreditGranted' }))).toHaveLength(3)
  })

  test('an invalid stream, type or cursor is reported', async () => {
    const ofStream: Record<string, string>[] = [
      { stream: stream(), cursor: '1.5' },
      { stream: 'ledger-nothing' },
    ]
    for (const query of [
      ...['\0', 'a/b', '$all', 'ledger-/../', "x' or 1=1", 'x'.repeat(4_000)].map((text) => ({
        stream: text,
      })),
      ...['<b>', '\0', 'NeverHappened'].map((text) => ({ type: text })),
      ...['x', '-1', '9'.repeat(40), '9999999999999999999'].map((text) => ({ cursor: text })),
      ...ofStream,
    ]) {
      const { statusCode, body } = await ada.get(list(query))
      expect([query, statusCode]).toEqual([query, 422])
      expect(body).toContain('role="alert"')
      expect(body).not.toContain('<b>')
    }
  })

  test('an impossible URL is a missing page', async () => {
    for (const position of ['%00', '9999999999999999999', '999999999999', '0', '1e3'])
      expect([position, [400, 404].includes((await ada.get(`/events/at/${position}`)).statusCode)]).toEqual([
        position,
        true,
      ])
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
    expect(hrefs(body, /\/calls\//)).toEqual([`/organizations/${scene.organizationId}/calls/${request}`])
    expect(hrefs(body, /^\/organizations\/\w+$/)).toContain(`/organizations/${scene.organizationId}`)
    // The page names the event that caused this event, and links to the previous and the next event.
    expect(body).toContain(
      `<dt>Caused by</dt><dd><span class="id whole">${events[revision - 1]?.id}</span></dd>`,
    )
    expect(hrefs(body, /event-log\/show\?/)).toEqual([at(revision - 1), at(revision + 1)])
    expect(body).toContain('<dt>Chain</dt><dd>holds</dd>')
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
      schema_version: version,
      actor: 'cli',
      effective_at: '2026-01-01T00:00:00.000Z',
      recorded_at: '2026-01-01T00:00:00.000Z',
      digest: 'D'.repeat(43),
    })
  let made = 0
  const written = async (type: string, data: string, metadata: string): Promise<string> => {
    const own = `key-hostile${++made}`
    const id = `00000000-0000-4000-8000-${String(made).padStart(12, '0')}`
    await room.foundation.eventLog.append(own, 'none', [{ id, type, data, metadata }])
    const { body, statusCode } = await ada.get(at(0, own))
    expect(statusCode).toBe(200)
    expect((await ada.get(list({ stream: own }))).statusCode).toBe(200)
    expect((await ada.get(list({}))).statusCode).toBe(200)
    return body
  }

  test.each([
    [
      'of a type of a later release',
      'CreditBorrowed',
      '{"a":1}',
      envelope(1),
      'its type is unknown to this release',
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
    expect(body).toContain('Its data is shown as it is stored.')
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
    expect(body).toContain('only the first 65536 of 900008 characters are shown')
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
    const listed = await ada.get(list({ stream: own }))
    expect(listed.statusCode).toBe(200)
    expect(listed.body).toContain('The chain is broken at revision 2: its bytes do not match its digest')
    expect(listed.body.match(/<div>broken at/g)).toHaveLength(1)
    expect((await ada.get(at(2, own))).body).toContain('broken at revision 2')
    // The next event still has the digest from before the change.
    expect((await ada.get(at(3, own))).body).not.toContain('broken')
    // If the digest is recomputed, the chain breaks at the next event.
    const [event] = await room.foundation.eventLog.read(own, { from: 2, max: 1 })
    const metadata = event?.metadata.replace(
      /"digest":"./,
      (text) => `${text.slice(0, -1)}${text.endsWith('A') ? 'B' : 'A'}`,
    )
    await changeEvent(owner, { stream: own, revision: 2 }, () => ({ metadata: metadata ?? '' }))
    expect((await ada.get(at(2, own))).body).toContain('broken at revision 3')
  })

  test('with a row that cannot be unpacked is shown up to there, and continues after that row', async () => {
    const { organizationId } = await openScene(room, { nowMs: Date.now(), days: 1, name: 'Damaged' })
    const own = ledgerStream(organizationId)
    const bad = Number(await room.foundation.eventLog.lastRevision(own)) + 2
    // The events are appended one after the other, so that each is in a separate row.
    for (const reason of ['before', 'damaged', 'after'])
      await grant(room.foundation, {
        organizationId,
        reason,
        priority: 1,
        expiresAt: null,
        actor: 'cli:setup',
        amount: parseCredits('1'),
      })
    const [{ position } = { position: 0n }] = await room.foundation.eventLog.read(own, { from: bad, max: 1 })
    await owner.query(`update log_segments set events = 'x' where last_position = $1`, [String(position)])
    expect((await ada.get(`/events/at/${position}`)).headers.location).toBe(at(bad, own))
    for (const [path, status] of [
      [list({ stream: own }), 200],
      [at(bad, own), 422],
    ] as const) {
      const { body, statusCode } = await ada.get(path)
      expect([path, statusCode]).toEqual([path, status])
      expect(body).toMatch(new RegExp(`Revision ${bad} of ledger-\\w+ cannot be opened`))
    }
    const seen = await walked(list({ stream: own }))
    const [after] = await room.foundation.eventLog.read(own, { from: bad + 1, max: 1 })
    const [before] = await room.foundation.eventLog.read(own, { from: bad - 1, max: 1 })
    expect(seen).toContain(String(after?.position))
    expect(seen).toContain(String(before?.position))
    expect(seen).not.toContain(String(position))
    expect((await ada.get(at(bad + 1, own))).body).toContain('the previous event could not be read')
    expect((await ada.get(list({}))).statusCode).toBe(200)
  })
})

test('a partner is refused, and its own pages have no link to the event log', async () => {
  const { password } = await createUser(room.foundation, {
    name: 'partner',
    role: 'partner',
    organizationId: scene.organizationId,
    actor: 'cli:setup',
  })
  const partner = await signedIn(room, { name: 'partner', password })
  for (const path of [list({}), list({ stream: stream() }), at(0), '/events/at/1'])
    expect([path, (await partner.get(path)).statusCode]).toEqual([path, 403])
  const call = await partner.get(`/organizations/${scene.organizationId}/calls/${scene.requestId}`)
  expect(call.statusCode).toBe(200)
  expect(hrefs(call.body, /^\/(events|commands\/event-log)/)).toEqual([])
})
