/** `install-packages` runs before every start and command. Of two simultaneous runs, one installs and the other waits. */
import { execFile, execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { exhaustive } from '../support/exhaustive.ts'

const dir = await mkdtemp(join(tmpdir(), 'installing-'))
await mkdir(join(dir, 'part'))
await writeFile(join(dir, 'part', 'package.json'), '{"name": "part", "version": "1.0.0"}')
const program = join(import.meta.dirname, '../../src/cli/install-packages')
// If both installed at the same time, both would start before either ended.
const install = 'echo began >> installs; sleep 0.5; echo ended >> installs'
const manifest = {
  name: 'whole',
  version: '1.0.0',
  scripts: { install },
  dependencies: { part: 'file:part' },
}
await writeFile(join(dir, 'package.json'), JSON.stringify(manifest))
execFileSync('npm', ['install', '--package-lock-only', '--offline', '--ignore-scripts'], { cwd: dir })
afterAll(() => rm(dir, { recursive: true, force: true }))

test('two simultaneous commands install the dependencies of a release once, and neither continues before they are complete', {
  skip: !exhaustive,
}, async ({ skip }) => {
  try {
    execFileSync('flock', ['--version'])
  } catch {
    skip('this host has no flock: commands do not wait for each other here')
  }
  const run = () => promisify(execFile)(program, { cwd: dir })
  await Promise.all([run(), run(), run()])
  expect(await readFile(join(dir, 'installs'), 'utf8')).toBe('began\nended\n')
})
