import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { migrate } from '../../src/foundation/migrate.ts'
import { testDatabase } from '../support/postgres.ts'
import { cli, createPartner, eventually, lookup, startService } from '../support/service.ts'

/** Processes of this release while a later one migrates their database: see src/guides/deployment.md, "What does a release promise?". */

let cleanUp: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const clean of cleanUp.reverse()) await clean()
  cleanUp = []
})

test('a running process continues after a migration that only adds; a process that starts after it is refused', async () => {
  const database = await testDatabase()
  cleanUp.push(database.drop)
  const dir = await mkdtemp(join(tmpdir(), 'rolling-'))
  cleanUp.push(() => rm(dir, { recursive: true, force: true }))
  const environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    ROLES: 'api,projector',
  }
  const service = await startService(environment)
  cleanUp.push(() => service.end('SIGTERM'))
  const partner = await createPartner('10', environment)
  const statusNow = async (): Promise<number> =>
    (await lookup(service.apiUrl, partner.apiKey, '8.8.8.8')).status
  await eventually(async () => ((await statusNow()) === 200 ? true : undefined))

  await cp('migrations', dir, { recursive: true })
  const next = String((await readdir(dir)).length + 1).padStart(4, '0')
  await writeFile(
    join(dir, `${next}_of_a_later_release.sql`),
    `create table of_a_later_release (id int primary key);
     alter table users add column of_a_later_release text not null default '';
     create index users_of_a_later_release on users (of_a_later_release);`,
  )
  expect((await migrate({ url: database.url, dir })).applied).toHaveLength(1)

  for (let i = 0; i < 5; i++) expect(await statusNow()).toBe(200)
  expect(service.output()).not.toMatch(/"level":(50|60)/)
  const refused = await cli(['org', 'list'], environment)
  expect([refused.code, refused.out]).toEqual([1, ''])
  expect(refused.err).toContain(`${next}_of_a_later_release`)
})
