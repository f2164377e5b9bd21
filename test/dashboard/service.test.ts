/** The service as it starts: the pages are there, over a real connection, where the dashboard's role runs. */
import { tmpdir } from 'node:os'
import pino from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users.ts'
import { parseConfig } from '../../src/config.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { type App, startApp } from '../../src/start/app.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { encoded, secretKey, tokenIn } from './dashboard-host.ts'

const logger = pino({ level: 'silent' })
let database: TestDatabase
let foundation: Foundation
let app: App

beforeAll(async () => {
  database = await testDatabase()
  const config = parseConfig({
    DATABASE_URL: database.url,
    SECRET_KEY: secretKey,
    DATA_DIR: tmpdir(),
    ROLES: 'dashboard',
    DASHBOARD_PORT: '0',
  })
  foundation = await openFoundation(config, { logger })
  app = await startApp(foundation, config, logger)
})
afterAll(async () => {
  await app?.close()
  await foundation?.close()
  await database?.drop()
})

test('a person signs in over HTTP, and a program is still refused in JSON', async () => {
  await putUser(foundation.pool, { name: 'ada', password: 'correct horse battery staple' })
  const login = `${app.dashboardUrl}/login`
  const page = await fetch(login)
  const form = (page.headers.getSetCookie()[0] ?? '').split(';')[0] ?? ''
  const answer = await fetch(login, {
    method: 'POST',
    redirect: 'manual',
    headers: { cookie: form, 'content-type': 'application/x-www-form-urlencoded' },
    body: encoded({
      _csrf: tokenIn(await page.text()),
      name: 'ada',
      password: 'correct horse battery staple',
    }),
  })
  expect(answer.status).toBe(303)
  const session = answer.headers.getSetCookie().find((cookie) => cookie.startsWith('dashboard_session='))
  const overview = await fetch(`${app.dashboardUrl}/`, {
    redirect: 'manual',
    headers: { cookie: session?.split(';')[0] ?? '' },
  })
  expect(overview.status).toBe(200)
  expect(await overview.text()).toContain('There is no organization yet')
  const whoami = await fetch(`${app.dashboardUrl}/whoami`)
  expect(whoami.status).toBe(401)
  expect(await whoami.json()).toMatchObject({ code: 'AUTH_001' })
})
