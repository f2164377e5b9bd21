import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../support/postgres.ts'
import { changeEvent } from '../support/segments.ts'
import { cli, cliJson } from '../support/service.ts'

/** A checkpoint is signed, stored elsewhere, and proves that the log was changed. */

const database = await testDatabase()
const dir = await mkdtemp(join(tmpdir(), 'checkpoints-'))
const environment = {
  DATABASE_URL: database.url,
  SECRET_KEY: 'a secret of the test, long enough to be one',
  KEY_DIR: join(dir, 'keys'),
}

afterAll(async () => {
  await database.drop()
  await rm(dir, { recursive: true, force: true })
})

test('a checkpoint stored elsewhere proves later events and exposes earlier changes', async () => {
  const { organization_id: org } = await cliJson<{ organization_id: string }>(
    ['org', 'create', 'One'],
    environment,
  )
  const signed = await cli(['event-log', 'checkpoint'], environment)
  expect(signed.code).toBe(0)
  const note = join(dir, 'note.txt')
  await writeFile(note, signed.out)
  expect(signed.out).toMatch(/^enrichment-ledger\/\S+\n\d+\n\S{44}\n\n— enrichment-ledger\/\S+ \S+\n$/)

  await cliJson(['credits', 'grant', org, '10', '--reason', 'opening'], environment)
  const sound = await cli(['event-log', 'verify', '--against', note], environment)
  expect(sound).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^ok .*\nok {6}the log extends the checkpoint/m),
  })
  expect(await cliJson(['event-log', 'checkpoints'], environment)).toMatchObject([{ note: signed.out }])

  const nonsense = await cli(['event-log', 'verify', '--against', join(dir, 'nothing')], environment)
  expect(nonsense).toMatchObject({ code: 2, err: expect.stringContaining('--against') })

  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  await changeEvent(pool, { stream: `ledger-${org}`, revision: 0 }, ({ data }) => ({
    data: data.replace('One', 'Two'),
  }))
  await pool.end()
  const broken = await cli(['event-log', 'verify', '--against', note], environment)
  expect(broken).toMatchObject({
    code: 1,
    out: expect.stringMatching(/^BROKEN {2}ledger-\S+ {2}revision 0, event /),
  })
}, 180_000)
