/** A client can be generated from /openapi.json. It equals the client stored in this folder, and can make calls. */
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { permission } from '../../src/events/capabilities.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { type House, openHouse, type Partner } from '../support/house.ts'
import { program } from './program.ts'

const run = promisify(execFile)
const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const kept = at('enrichment.ts')
/** Ends a process that hangs. A busy machine is several times slower than a quiet one. */
const deadlineMs = 150_000
const generates = exhaustive || process.env.CLIENT === 'write'

let house: House
let tester: Partner
beforeAll(async () => {
  house = await openHouse()
  const { organizationId } = await house.partner()
  const opened = await openTestOrganization(house.foundation, { organizationId, actor: 'cli' })
  tester = await house.key(opened, { permissions: permission.options })
})
afterAll(() => house?.close())

const formatted = (text: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const root = at('../..')
    const biome = execFile(
      process.execPath,
      [at('../../node_modules/@biomejs/biome/bin/biome'), 'format', '--stdin-file-path=test/client/x.ts'],
      { cwd: root, timeout: deadlineMs, maxBuffer: 16_000_000 },
      (error, out) => (error === null ? resolve(out) : reject(error)),
    )
    biome.stdin?.end(text)
  })

test.runIf(generates)('the client in the repository is the one generated from the document', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'client-'))
  const [document, file] = [join(directory, 'openapi.json'), join(directory, 'enrichment.ts')]
  await writeFile(document, await (await fetch(`${house.apiUrl}/openapi.json`)).text())
  await run(process.execPath, [at('generate.ts'), document, file], { timeout: deadlineMs })
  const generated = await formatted(await readFile(file, 'utf8'))
  await rm(directory, { recursive: true })
  if (process.env.CLIENT === 'write') await writeFile(kept, generated)
  expect(await readFile(kept, 'utf8')).toBe(generated)
})

test('the documented command uses the newest generator, which brings its own compiler', async () => {
  for (const guide of ['../../README.md', '../../src/guides/quick-start.md']) {
    const commands = (await readFile(at(guide), 'utf8')).match(/^npx openapi-typescript\S* /gm)
    expect([guide, commands]).toEqual([guide, ['npx openapi-typescript@latest ']])
  }
})

test.runIf(exhaustive)('the compiler checks a program that uses it', async () => {
  const compiler = at('../../node_modules/typescript/bin/tsc')
  const options = ['--ignoreConfig', '--noEmit', '--strict', '--module', 'nodenext', '--target', 'esnext']
  const checked = run(
    process.execPath,
    [compiler, ...options, '--skipLibCheck', '--allowImportingTsExtensions', at('program.ts')],
    { cwd: at('../..'), timeout: deadlineMs },
  )
  await expect(checked).resolves.toMatchObject({ stdout: '' })
})

test('the program gets its answers', async () => {
  // A process refuses calls with 503 while its database stalls, and the program does not repeat them.
  const answers = () => program(house.apiUrl, tester.apiKey)
  await expect.poll(answers, { timeout: 60_000, interval: 500 }).toMatchObject({
    ...{ status: 'unknown', retryAfter: 300, code: 'IP_001', job: 'Example Works' },
    ...{ charged: '2', keyId: tester.keyId },
    ...{ nowhere: 404, misspelt: 400, absent: undefined, neverAnswered: false },
  })
})
