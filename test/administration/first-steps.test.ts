/** The commands that a start prints: those that create the first user and the first organization. */
import { expect, test } from 'vitest'
import { anyOrganization, firstSteps } from '../../src/administration/first-steps.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { houseForFile } from '../support/house.ts'

const actor = 'cli:setup'
const { foundation } = await houseForFile()

const commands = async () => (await firstSteps(foundation)).map(({ command }) => command)

test('there is one step fewer once there is an organization, and none once there is a user, even if its row is missing', async () => {
  expect(await commands()).toEqual(['user create ada', 'org create "Acme"'])
  expect(await anyOrganization(foundation)).toBe(false)
  await createOrganization(foundation, { name: 'Acme', overdraftLimit: 0n, actor })
  expect(await commands()).toEqual(['user create ada'])
  await createUser(foundation, { name: 'ada', role: null, organizationId: null, actor })
  expect(await commands()).toEqual([])
  await foundation.pool.query('delete from users')
  expect(await commands()).toEqual([])
})
