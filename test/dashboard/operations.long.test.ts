/** The audit, data sources and projections, as operators see and change them in the dashboard. */

import { readFileSync } from 'node:fs'
import { describe, expect, test, vi } from 'vitest'
import { keyUsage } from '../../projections/key-usage.ts'
import { ledgerLines } from '../../projections/ledger-lines.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { sourceJson } from '../../src/administration/sources/queries.ts'
import { type DataSource, isTooOld, recordImport } from '../../src/call/data-source.ts'
import { listsAgeDaysMax } from '../../src/capabilities/email-validation/lists/age.ts'
import { geoAgeDaysMax } from '../../src/capabilities/ip-lookup/geo-database.ts'
import { liveTable } from '../../src/projector/tables.ts'
import { browserOfAda, give, roomForFile } from './dashboard-host.ts'
import { openScene } from './scene.ts'

const organizations = 130

const room = await roomForFile({
  environment: { PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL: 'https://who.example/a-secret-path' },
})
const ada = await browserOfAda(room)
const organization = (n: number) => ({ name: `<b>Org</b> ${n}`, overdraftLimit: 0n, actor: 'user:bob' })
const create = (n: number) => createOrganization(room.foundation, organization(n))
// A command waits only a few seconds for its turn to be recorded, so they are sent a few at a time.
for (let n = 0; n < organizations - 1; n += 16)
  await Promise.all(Array.from({ length: Math.min(16, organizations - 1 - n) }, (_, i) => create(n + i)))
await create(organizations - 1)
await openScene(room, { nowMs: Date.now(), days: 1 })
await room.caughtUp()

const rowsIn = (body: string): number => body.split('<tr').length - 2

test('lists changes with their actors, the newest first, one page at a time', async () => {
  const { statusCode, body } = await ada.get('/commands/audit/list?actor=bob')
  expect(statusCode).toBe(200)
  expect(rowsIn(body)).toBe(100)
  expect(body).toMatch(/<a href="\/organizations\/org_\w+">&lt;b&gt;Org&lt;\/b&gt; \d+<\/a>/)
  expect(body).toContain(`&lt;b&gt;Org&lt;/b&gt; ${organizations - 1}`)
  expect(body).not.toContain('<b>Org')
  const more =
    /href="(\/commands\/audit\/list\?[^"]*cursor=\d+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
  const second = await ada.get(more)
  expect(rowsIn(second.body)).toBe(organizations - 100)
  expect(second.body).toContain('First page')
})

test('shows the error in a filter next to it, and in a cursor that is no position', async () => {
  for (const query of ['since=yesterday', 'about=%00', `cursor=${2n ** 63n}`]) {
    const { statusCode, body } = await ada.get(`/commands/audit/list?${query}`)
    expect({ query, statusCode }).toEqual({ query, statusCode: 422 })
    expect(body).toContain('role="alert"')
  }
})

test('reads no more of the log than a page shows', async () => {
  const at = vi.spyOn(room.foundation.eventLog, 'at')
  try {
    expect(rowsIn((await ada.get('/commands/audit/list')).body)).toBe(100)
    expect(at.mock.calls.length).toBe(101)
  } finally {
    at.mockRestore()
  }
})

test('reports that events are missing which this release cannot read', async () => {
  const { pool } = room.foundation
  const says = /1 event is missing here/
  await pool.query(
    `insert into parked_events (projection, position, stream, error, parked_at) values ('audit', 1, 'x', 'a test', now())`,
  )
  try {
    expect((await ada.get('/commands/audit/list')).body).toMatch(says)
  } finally {
    await pool.query(`delete from parked_events where projection = 'audit'`)
  }
  expect((await ada.get('/commands/audit/list')).body).not.toMatch(says)
})

describe('data sources', () => {
  test('are shown with their origin, content, age, and the person who imported them', async () => {
    await room.foundation.pool.query(
      `insert into companies (domain, name, source, source_updated_at, preference, tie_break)
       values ('a.example', 'A', 'Set <b>', '2026-10-01T00:00:00Z', 1, 'a'), ('b.example', 'B', 'Other', '2026-09-01T00:00:00Z', 1, 'b')`,
    )
    await recordImport(
      room.foundation.eventLog,
      { data: 'companies', source: 'Set <b>', as_of: '2026-10-01T00:00:00.000Z', imported: 2 },
      { actor: 'user:ada' },
    )
    await room.caughtUp()
    const { statusCode, body } = await ada.get('/commands/data/list')
    expect(statusCode).toBe(200)
    for (const name of [
      'Disposable domains',
      'Free-mail domains',
      'Locations of IPv4',
      'Locations of IPv6',
      'Companies',
      'Data set of people',
      'Profiles kept',
      'Suppressed identifiers',
    ])
      expect(body).toContain(`data-head="Data">${name}</th>`)
    expect(body).toContain('2 companies')
    expect(body).toContain('Other, Set &lt;b&gt;')
    expect(body).toContain('user:ada')
    expect(body).toContain('the source at who.example')
    expect(body).not.toContain('a-secret-path')
    expect(body).not.toContain('role="alert"')
    expect((await ada.get('/operations')).body).toContain('href="/commands/data/list"')
  })
})

test('a source older than its limit is marked, and the page says what to do', () => {
  const nowMs = Date.parse('2026-11-23T12:00:00.000Z')
  const source = (ageDays: number): DataSource => ({
    name: 'N',
    from: 'f',
    version: null,
    holds: 'h',
    imported: null,
    place: 'host',
    asOf: new Date(nowMs - ageDays * 86_400_000),
    ageDaysMax: 90,
    remedy: 'Refresh <it>.',
  })
  expect([isTooOld(source(90), nowMs), isTooOld(source(91), nowMs)]).toEqual([false, true])
  const told = (ageDays: number) => sourceJson(source(ageDays), null, nowMs)
  expect(told(91)).toMatchObject({ too_old: true, age_days: 91, remedy: 'Refresh <it>.' })
  expect(told(90)).toMatchObject({ too_old: false, age_days: 90, remedy: null })
})

test('alerts have the same limits as the pages and "doctor"', () => {
  const alerts = readFileSync(new URL('../../src/metrics/observe/alerts.yml', import.meta.url), 'utf8')
  expect(alerts).toContain(`max(enrichment_email_lists_age_seconds) > ${listsAgeDaysMax} * 86400`)
  expect(alerts).toContain(`max(enrichment_geo_database_age_seconds) > ${geoAgeDaysMax} * 86400`)
})

const given = (verb: string, fields: Record<string, string>) =>
  give(ada, `/commands/projection/${verb}`, fields)

test('every projection is listed with its position, and can be rebuilt', async () => {
  const { body, statusCode } = await ada.get('/operations')
  expect(statusCode).toBe(200)
  for (const name of [keyUsage.name, ledgerLines.name])
    expect(body).toContain(`href="/commands/projection/rebuild?name=${name}"`)
  expect((await ada.get('/commands/jobs/list')).body).toContain('No jobs are scheduled yet')
  const one = (await ada.get(`/commands/projection/list?name=${keyUsage.name}`)).body
  expect(one).toContain(`href="/commands/projection/rebuild?name=${keyUsage.name}"`)
  expect(one).not.toContain(`?name=${ledgerLines.name}"`)
  for (const name of ['nothing', '%00'])
    expect((await ada.get(`/commands/projection/list?name=${name}`)).statusCode).toBe(422)
})

describe('a rebuild', () => {
  test('does not remove rows whose events a restored log has lost, and lists the possible losses', async () => {
    const { pool } = room.foundation
    // Adds a line, and then a last event, that are not in the log.
    const lines = liveTable(ledgerLines)('ledger_lines')
    const { rows: moved } = await pool.query(
      `update ${lines} set revision = 1000000 where (ledger, revision) =
         (select ledger, revision from ${lines} where kind = 'grant' limit 1) returning ledger`,
    )
    expect(moved).toHaveLength(1)
    await pool.query(
      `update projection_checkpoints set digest = 'another', state = 'halted', error = 'restored' where name = $1`,
      [ledgerLines.name],
    )
    const wanted = { name: ledgerLines.name, reason: 'restored' }
    const { statusCode, body } = await given('rebuild', wanted)
    expect([statusCode, body]).toEqual([
      422,
      expect.stringContaining('Only the rows contain the following facts'),
    ])
    expect((await given('rebuild', { ...wanted, 'accept-loss': 'another' })).statusCode).toBe(422)
    expect((await pool.query(`select from ${lines} where revision = 1000000`)).rows).toHaveLength(1)
  })
})
