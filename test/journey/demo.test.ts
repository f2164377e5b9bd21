import { execFile } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { directoryForFile } from '../support/directory.ts'
import { cli, cliJson, type Service, startService } from '../support/service.ts'
import { serviceOnTerminal } from '../support/terminal.ts'

/** The service's statements about its demo are true, even after the demo has been changed. */

let service: Service | undefined

const dataDir = await directoryForFile()
service = await startService({ DATA_DIR: dataDir })

afterAll(() => service?.end('SIGTERM'))

const written = async (): Promise<Record<string, string>> =>
  JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')) as Record<string, string>

const restarted = async (): Promise<string> => {
  await service?.end('SIGTERM')
  service = await startService({ DATA_DIR: dataDir })
  return service.output()
}

/** The output of a start without a terminal shows where the key and the password are, and includes a command that works in a shell. */
const expectNoSecretIn = async (output: string): Promise<void> => {
  const { api_key: key = '-', dashboard_password: password = '-' } = await written()
  expect(output).not.toContain(key)
  expect(output).not.toContain(password)
  expect(output).toContain(`password in ${join(dataDir, 'demo.json')}`)
  const curl = /^curl .*$/m.exec(output)?.[0] ?? ''
  const { stdout } = await promisify(execFile)('sh', ['-c', curl.replace(/^curl/, 'printf "%s\\n"')])
  expect(stdout).toContain(`x-api-key: ${key}`)
}

test('without a terminal, not even the first start prints the key or password, but it shows where they are', async () => {
  expect((await stat(join(dataDir, 'demo.json'))).mode & 0o777).toBe(0o600)
  const first = service?.output() ?? ''
  expect(first).toMatch(/^Usage chart: http:\S+\/organizations\/org_\w+\/usage$/m)
  await expectNoSecretIn(first)
})

test('a first start on a terminal prints key and password once, and logs in a readable format', async () => {
  const directory = join(dataDir, 'terminal')
  const terminal = serviceOnTerminal({
    DATA_DIR: directory,
    API_PORT: '0',
    DASHBOARD_PORT: '0',
    METRICS_PORT: '0',
    LOG_LEVEL: 'info',
  })
  try {
    const path = join(directory, 'demo.json')
    await terminal.until(`printed only this once; they are also stored in ${path}`)
    const demo = JSON.parse(await readFile(path, 'utf8')) as Record<string, string>
    expect(terminal.shown()).toContain(`x-api-key: ${demo.api_key}`)
    expect(terminal.shown()).toContain(
      `password ${demo.dashboard_password} (you can keep it on this machine)`,
    )
    expect(terminal.shown()).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: /m)
    expect(terminal.shown()).not.toContain('{"level":')
  } finally {
    terminal.type('\u0003')
    await terminal.ended
  }
})

test('a reseeded demo shows where the service answers; the next start and demo.json name the new demo', async () => {
  const { out } = await cli(['seed'], { DATA_DIR: dataDir })
  expect(out).toContain(`${join(dataDir, 'demo.json')} now contains this organization`)
  const before = await written()
  const seeded = await cliJson<Record<string, string>>(['seed'], { DATA_DIR: dataDir })
  expect(seeded.dashboard_password).not.toBe(before.dashboard_password)
  expect(await written()).toEqual(seeded)
  expect((await stat(join(dataDir, 'demo.json'))).mode & 0o777).toBe(0o600)
  expect([seeded.api_url, seeded.dashboard_url]).toEqual([service?.apiUrl, service?.dashboardUrl])
  const next = await restarted()
  expect(next).toContain(`organization ${seeded.organization_id}`)
  expect(next).not.toContain(before.dashboard_password)
  await expectNoSecretIn(next)
})

test('a password that was changed elsewhere is no longer printed', async () => {
  const { dashboard_password: old = '' } = await written()
  expect((await cli(['user', 'password', 'demo', '--yes'], { DATA_DIR: dataDir })).code).toBe(0)
  const next = await restarted()
  expect(next).not.toContain(old)
  expect(next).toContain('whose password was changed')
})
