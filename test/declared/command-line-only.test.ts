/**
 * Commands that exist only on the command line, with a reason for each. Every other command is declared once, and the API and the
 * dashboard offer it too.
 */
import { expect, test } from 'vitest'
import { declarations } from '../../src/administration/declarations.ts'
import { commands } from '../cli/commands.ts'

const files = 'it reads or writes files of the server'
const secrets = 'it changes secrets of the installation, which only its machine has'
const stopped = 'it works while the service is stopped'

const reasons: Readonly<Record<string, string>> = {
  'companies import': files,
  'profiles import': files,
  'event-log announce-key': secrets,
  'event-log copy': stopped,
  'event-log prepare': secrets,
  'backup create': files,
  'backup verify': files,
  'backup restore': stopped,
  seed: 'it makes the first user, so sign-in is not possible yet',
  'epoch-key list': files,
  'epoch-key abandon': files,
  'secrets status': secrets,
  'secrets rotate': secrets,
  doctor: 'it works where nothing else does; the dashboard shows the same checks',
  migrate: stopped,
  completion: 'it writes a script for a shell',
}

test('each command that exists only on the command line has a reason', () => {
  const offeredElsewhere = new Set(
    declarations
      .filter(({ interfaces }) => interfaces.some((one) => one !== 'command line'))
      .map(({ name }) => name as string),
  )
  const alone = commands.map(({ name }) => name).filter((name) => !offeredElsewhere.has(name))
  expect(alone.sort()).toEqual(Object.keys(reasons).sort())
})

test('the command line offers everything that another interface offers', () => {
  const names = commands.map(({ name }) => name)
  expect(declarations.filter(({ name }) => !names.includes(name)).map(({ name }) => name)).toEqual([])
})
