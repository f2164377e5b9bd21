import { afterAll, expect, test } from 'vitest'
import { until } from '../support/house.ts'
import { variablesForFile } from '../support/postgres.ts'
import { cli, type Service, startService } from '../support/service.ts'

/** A service on your own empty database prints commands to type, and these commands work. */

let service: Service | undefined

const { environment } = await variablesForFile()
afterAll(() => service?.end('SIGTERM'))

const started = async (): Promise<string> => {
  await service?.end('SIGTERM')
  service = await startService({ ...environment, ROLES: 'api,dashboard' })
  const { output } = service
  // The commands are printed after the addresses, and the tests must not make calls before they are printed.
  await until('it has said it', async () => /Docker Compose:\n\n(docker .*\n)+\n/.test(output()))
  return output()
}

const typed = (output: string): string[] =>
  [...output.matchAll(/^npm run -s cli -- (.*?) +#/gm)].map(([, command = '']) => command)

test('the terminal shows the commands that make a user and an organization, and they work', async () => {
  const output = await started()
  expect(output).toContain('No one can sign in yet, and there is no organization yet. Run,')
  expect(typed(output)).toEqual(['user create ada', 'org create "Acme"'])
  expect(output).toContain('\ndocker compose run --rm --no-deps migrate user create ada\n')
  expect((await cli(['user', 'create', 'ada'], environment)).code).toBe(0)
  const next = await started()
  expect(next).toContain('There is no organization yet. Run,')
  expect(typed(next)).toEqual(['org create "Acme"'])
  expect((await cli(['org', 'create', 'Acme'], environment)).code).toBe(0)
})
