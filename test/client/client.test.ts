/** A partner generates types from /openapi.json. The compiler checks the partner's program with them, and the program gets its answers. */
import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { permission } from '../../src/events/capabilities.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { openHouse } from '../support/house.ts'

const run = promisify(execFile)
const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
/** Ends a process that hangs. A busy machine is several times slower than a quiet one. */
const deadlineMs = 150_000

/** The partner's folder. */
const house = await openHouse()
const { organizationId } = await house.partner()
const opened = await openTestOrganization(house.foundation, { organizationId, actor: 'cli' })
const tester = await house.key(opened, { permissions: permission.options })
const folder = await mkdtemp(join(tmpdir(), 'client-'))
await copyFile(at('program.ts'), join(folder, 'program.ts'))
await symlink(at('../../node_modules'), join(folder, 'node_modules'))
afterAll(async () => {
  await house.close()
  await rm(folder, { recursive: true, force: true })
})

test('the documented command uses the newest generator, which brings its own compiler', async () => {
  for (const guide of ['../../README.md', '../../src/guides/quick-start.md']) {
    const commands = (await readFile(at(guide), 'utf8')).match(/^npx openapi-typescript\S* /gm)
    expect([guide, commands]).toEqual([guide, ['npx openapi-typescript@latest ']])
  }
})

test.runIf(exhaustive)('the compiler checks a program that uses the generated types', async () => {
  const [document, types] = [join(folder, 'openapi.json'), join(folder, 'enrichment.ts')]
  await writeFile(document, await (await fetch(`${house.apiUrl}/openapi.json`)).text())
  await run(process.execPath, [at('generate.ts'), document, types], { timeout: deadlineMs })
  const compiler = at('../../node_modules/typescript/bin/tsc')
  const options = ['--ignoreConfig', '--noEmit', '--strict', '--module', 'nodenext', '--target', 'esnext']
  const checked = run(
    process.execPath,
    [compiler, ...options, '--skipLibCheck', '--allowImportingTsExtensions', 'program.ts'],
    { cwd: folder, timeout: deadlineMs },
  )
  await expect(checked).resolves.toMatchObject({ stdout: '' })
})

test('the program gets its answers', async () => {
  // A process refuses calls with 503 while its database stalls, and the program does not repeat them.
  const { program } = await import(pathToFileURL(join(folder, 'program.ts')).href)
  const answers = () => program(house.apiUrl, tester.apiKey)
  await expect.poll(answers, { timeout: 60_000, interval: 500 }).toMatchObject({
    status: 'unknown',
    retryAfter: 300,
    code: 'IP_001',
    job: 'Example Works',
    charged: '2',
    keyId: tester.keyId,
    nowhere: 404,
    misspelt: 400,
    absent: undefined,
    neverAnswered: false,
  })
})
