import { spawnSync } from 'node:child_process'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { root } from '../support/service.ts'

test.each([
  ['ends in the middle', 'process.exit(130)', 130, []],
  ['fails in the middle', 'throw new Error("it failed")', 1, []],
  ['is done', 'await write("rest")', 0, ['out.csv']],
])('a process that %s leaves %#', async (_, then, status, left) => {
  const dir = await mkdtemp(join(tmpdir(), 'output-'))
  try {
    const program = `
      import { withOutput } from './src/cli/output.ts'
      const path = ${JSON.stringify(join(dir, 'out.csv'))}
      await withOutput(async () => {}, { path, replace: false }, async (write) => {
        await write('x'.repeat(600_000))
        ${then}
      })`
    const ended = spawnSync(process.execPath, ['--input-type=module', '--eval', program], { cwd: root })
    expect(ended.status).toBe(status)
    expect(await readdir(dir)).toEqual(left)
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
})
