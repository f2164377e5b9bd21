/** What a person sees and changes of themselves: role, password, sign-ins. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
let password = ''

beforeAll(async () => {
  room = await openDashboardHost()
  ;({ password } = await userWhoChose(room, {
    ...{ name: 'ada', role: 'viewer', organizationId: null, actor: 'system' },
  }))
  ada = await signedIn(room, { name: 'ada', password })
})
afterAll(() => room?.close())

const change = (fields: Record<string, string>) => ada.submit('/me', fields, '/me/password')

test('shows who one is, and leads there from every page', async () => {
  expect((await ada.get('/')).body).toContain('<a href="/me">')
  const { statusCode, body } = await ada.get('/me')
  expect(statusCode).toBe(200)
  expect(body).toContain('viewer')
  expect(body).toContain('this one')
})

test('ends every other sign-in, and not this one', async () => {
  const other = await signedIn(room, { name: 'ada', password })
  expect((await ada.get('/me')).body).toContain('another browser')
  expect((await ada.submit('/me', {}, '/me/sessions/end')).statusCode).toBe(303)
  expect((await other.get('/')).statusCode).toBe(303)
  expect((await ada.get('/me')).body).not.toContain('another browser')
})

const chosen = 'four words and a number 7'

test.each([
  ['the present one is wrong', { present: 'no', new: chosen, again: chosen }, 'It is not your password'],
  ['it is too short', { new: 'short', again: 'short' }, 'At least 15 characters'],
  ['it was typed differently', { new: chosen, again: `${chosen}8` }, 'typed twice, and differently'],
  ['it is the present one', { new: 'PRESENT', again: 'PRESENT' }, 'It is the present password'],
  ['it is endless', { new: 'x'.repeat(1_025), again: 'x'.repeat(1_025) }, 'At most 1024 characters'],
])('a new password is refused where %s', async (_, fields, says) => {
  const typed = Object.entries({ present: password, ...fields })
  const { statusCode, body } = await change(
    Object.fromEntries(typed.map(([name, value]) => [name, value === 'PRESENT' ? password : value])),
  )
  expect(statusCode).toBe(422)
  expect(body).toContain(says)
  expect(body).not.toContain(chosen)
})

test('a new password ends every session, is an event, and is the one that opens', async () => {
  const { statusCode, headers } = await change({ present: password, new: chosen, again: chosen })
  expect({ statusCode, to: headers.location }).toEqual({ statusCode: 303, to: '/login' })
  expect((await ada.get('/')).statusCode).toBe(303)
  const events = (await room.foundation.eventLog.read(operatorStream, { direction: 'backwards', max: 5 }))
    .map(decodeEvent)
    .filter(({ type }) => type === 'UserPasswordChanged')
    .slice(0, 1)
  expect(events.map(({ metadata }) => metadata.actor)).toEqual(['user:ada'])
  ada = await signedIn(room, { name: 'ada', password: chosen })
  expect((await ada.get('/me')).statusCode).toBe(200)
})
