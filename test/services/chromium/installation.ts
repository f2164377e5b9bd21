/** The service as a separate process, with people and a history, so that tests can follow a person from the first page to the last. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pino from 'pino'
import { ulid } from 'ulid'
import { parseConfig } from '../../../src/config.ts'
import type { UserRole } from '../../../src/events/users.ts'
import { openFoundation } from '../../../src/foundation/foundation.ts'
import { openPriceBooks } from '../../../src/ledger/prices/price-books.ts'
import { writeHistory } from '../../bench/ledger-history.ts'
import { userWhoChose } from '../../dashboard/dashboard-host.ts'
import { openScene, type Scene } from '../../dashboard/scene.ts'
import { testDatabase } from '../../support/postgres.ts'
import { type Service, startService } from '../../support/service.ts'
import type { Person } from './people.ts'

export type Installation = {
  readonly service: Service
  readonly databaseUrl: string
  readonly scene: Scene
  /** An admin and a person with the finance role. */
  readonly ada: Person
  readonly bob: Person
  readonly folder: string
  close(): Promise<void>
}

/** The events of a second organization. They are so many that a rebuild takes long enough to show its progress. */
const eventsElsewhere = 60_000

export const openInstallation = async (): Promise<Installation> => {
  const database = await testDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'story-'))
  const variables = { DATABASE_URL: database.url, SECRET_KEY: 'a secret of the test, long enough to be one' }
  const { scene, ada, bob } = await peopled({ ...variables, KEY_DIR: database.keyDir, DATA_DIR: folder })
  await writeHistory(database.url, [{ organizationId: `org_${ulid()}`, events: eventsElsewhere }])
  const service = await startService(variables)
  return {
    service,
    scene,
    ada,
    bob,
    folder,
    databaseUrl: database.url,
    close: async () => {
      await service.end('SIGTERM')
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Writes the history before the service starts. It uses the service's own functions, so that calls can be in past months. */
const peopled = async (variables: Readonly<Record<string, string>>) => {
  const logger = pino({ level: 'silent' })
  const foundation = await openFoundation(parseConfig(variables), { logger })
  const prices = openPriceBooks({ eventLog: foundation.eventLog, logger })
  try {
    await prices.caughtUp
    const person = (name: string, role: UserRole): Promise<Person> =>
      userWhoChose({ foundation }, { name, role })
    const [ada, bob] = [await person('ada', 'admin'), await person('bob', 'finance')]
    const scene = await openScene({ foundation, prices, caughtUp: async () => {} }, { nowMs: Date.now() })
    return { ada, bob, scene }
  } finally {
    await prices.stop()
    await foundation.close()
  }
}

const run = promisify(execFile)

/** Runs a line as if it had been pasted into a terminal. */
export const pasted = async (line: string): Promise<string> => (await run('sh', ['-c', line])).stdout

/** Runs a downloaded program, which can read its own folder and nothing else on this machine. */
export const downloaded = async (
  folder: string,
  args: readonly string[],
): Promise<{ code: number; out: string; err: string }> => {
  const options = ['--permission', `--allow-fs-read=${folder}`, ...args]
  return run(process.execPath, options, { cwd: folder, env: {} }).then(
    ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
    ({ code, stdout, stderr }) => ({ code, out: stdout, err: stderr }),
  )
}
