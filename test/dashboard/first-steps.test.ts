/** An installation without users shows the first steps to visitors. Once the first user exists, the first steps are hidden. */
import { expect, test } from 'vitest'
import { anyOrganization, createVisitorSteps, firstSteps } from '../../src/administration/first-steps.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { openBrowser, roomForFile } from './dashboard-host.ts'

const actor = 'cli:setup'

const room = await roomForFile()

const signInPage = async (): Promise<string> => (await openBrowser(room.host).get('/login')).body

test('without users, the sign-in page shows the commands to type, with one step fewer once there is an organization', async () => {
  const page = await signInPage()
  expect(page).toContain('No one can sign in yet, and there is no organization yet.')
  expect(page).toContain('npm run -s cli -- user create ada\nnpm run -s cli -- org create &quot;Acme&quot;\n')
  expect(page).toContain('docker compose run --rm --no-deps migrate user create ada\n')
  expect(await anyOrganization(room.foundation)).toBe(false)
  await createOrganization(room.foundation, { name: 'Acme', overdraftLimit: 0n, actor })
  expect(await firstSteps(room.foundation)).toHaveLength(1)
  const next = await signInPage()
  expect(next).toContain('No one can sign in yet.')
  expect(next).not.toContain('org create')
})

test('the sign-in page shows no commands while the event log is down', async () => {
  const eventLog = {
    ...room.foundation.eventLog,
    read: () => Promise.reject(new Error('away')),
  }
  expect(await createVisitorSteps({ pool: room.foundation.pool, eventLog })()).toEqual([])
})

test("from the first user on, the sign-in page shows no commands, even if the user's row is missing", async () => {
  await createUser(room.foundation, { name: 'ada', role: null, organizationId: null, actor })
  expect(await firstSteps(room.foundation)).toEqual([])
  await room.foundation.pool.query('delete from users')
  expect(await createVisitorSteps(room.foundation)()).toEqual([])
  const page = await signInPage()
  expect(page).not.toContain('First steps')
  expect(page).not.toContain('npm run')
})
