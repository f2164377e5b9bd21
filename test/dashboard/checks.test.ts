/** The findings of checks, on the operator's pages. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Finding } from '../../src/administration/checks/check.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'

const finding = (level: Finding['level'], about: string): Finding => ({
  level,
  about,
  says: `${about} says <b>${level}</b>\u202e`,
  remedy: level === 'ok' ? null : `mend ${about}`,
  figures: {},
})

let room: DashboardHost
let viewer: Browser
let found: readonly Finding[] = []

beforeAll(async () => {
  room = await openDashboardHost({ findings: async () => found })
  const { password } = await createUser(room.foundation, {
    name: 'vi',
    role: 'viewer',
    organizationId: null,
    actor: 'cli:setup',
  })
  viewer = await signedIn(room, { name: 'vi', password })
})
afterAll(() => room?.close())

test('operations lists all of them, problems first, with remedies', async () => {
  found = [finding('ok', 'disk'), finding('warning', 'clocks'), finding('fault', 'jobs')]
  const { body } = await viewer.get('/operations')
  const places = ['jobs says', 'clocks says', 'disk says'].map((text) => body.indexOf(text))
  expect(places).toEqual(places.toSorted((a, b) => a - b))
  expect(places[0]).toBeGreaterThan(0)
  expect(body).toContain('mend jobs')
  expect(body).toContain('&lt;b&gt;fault&lt;/b&gt;')
  expect(body).not.toContain('\u202e')
})

test('the overview shows only problems', async () => {
  found = [finding('ok', 'disk'), finding('warning', 'clocks')]
  const { body } = await viewer.get('/')
  expect(body).toContain('mend clocks')
  expect(body).not.toContain('disk says')
  found = [finding('ok', 'disk')]
  expect((await viewer.get('/')).body).toContain('checks of this process are ok.')
})
