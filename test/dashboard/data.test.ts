/** The dashboard's page about data sources, with existing lists and files. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { auditEntries } from '../../src/administration/event-log/audit.ts'
import { sourceJson } from '../../src/administration/sources/queries.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { type DataSource, isTooOld, recordImport } from '../../src/call/data-source.ts'
import { listsAgeDaysMax } from '../../src/capabilities/email-validation/lists/age.ts'
import { geoAgeDaysMax } from '../../src/capabilities/ip-lookup/geo-settings.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser

beforeAll(async () => {
  room = await openDashboardHost({
    environment: { PROFILE_PROVIDER: 'http', PROFILE_HTTP_URL: 'https://who.example/a-secret-path' },
  })
  const user = { name: 'ada', password: 'correct horse battery staple' }
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
})
afterAll(() => room?.close())

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

  test('are in the audit when they are imported', async () => {
    await room.caughtUp()
    const filter = { since: null, actors: null, about: 'companies', type: 'DataImported', oldestFirst: false }
    const told = await Array.fromAsync(auditEntries(room.foundation, filter, { max: 2 }))
    expect(told.map(({ actor, says }) => ({ actor, says }))).toEqual([
      {
        actor: 'user:ada',
        says: 'imported 2 records of companies from "Set <b>", as of 2026-10-01T00:00:00.000Z',
      },
    ])
  })
})

test('a source older than its limit is marked, and the page says what to do', () => {
  const nowMs = Date.parse('2026-11-23T12:00:00.000Z')
  const source = (ageDays: number): DataSource => ({
    ...{ name: 'N', from: 'f', version: null, holds: 'h', imported: null, place: 'host' },
    ...{ asOf: new Date(nowMs - ageDays * 86_400_000), ageDaysMax: 90, remedy: 'Refresh <it>.' },
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
