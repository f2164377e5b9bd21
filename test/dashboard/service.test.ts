/** A started service has the pages, over a real connection, if it runs the dashboard's role. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { type House, openHouse } from '../support/house.ts'
import { encoded, tokenIn } from './dashboard-host.ts'

let house: House

beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

test('a person signs in over HTTP, and a program is still refused in JSON', async () => {
  await putUser(house.foundation.pool, { name: 'ada', password: 'correct horse battery staple' })
  const login = `${house.dashboardUrl}/login`
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
  const overview = await fetch(`${house.dashboardUrl}/`, {
    redirect: 'manual',
    headers: { cookie: session?.split(';')[0] ?? '' },
  })
  expect(overview.status).toBe(200)
  expect(await overview.text()).toContain('Needs attention')
  const whoami = await fetch(`${house.dashboardUrl}/whoami`)
  expect(whoami.status).toBe(401)
  expect(await whoami.json()).toMatchObject({ code: 'AUTH_001' })
})
