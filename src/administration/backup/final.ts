import { randomUUID } from 'node:crypto'
import { resolve } from 'node:path'
import pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import { openingWith } from '../../foundation/closing.ts'
import { openDatabase } from '../../foundation/database.ts'
import { openFoundation } from '../../foundation/foundation.ts'
import { markSentences, readMark, removeMark, writeMark } from '../../foundation/installation-mark.ts'
import { refuseRunning } from '../event-log/event-logs.ts'
import { type Asked, createBackup, type MadeBackup, refuseTaken } from './create.ts'

type Options = { readonly logger: Logger; readonly waitMs: number }

/**
 * Makes the last backup of an installation that will not start again. The installation is marked before anything is copied, so no
 * event is missing from the backup. An interruption leaves the mark, and the command can be repeated. A failure removes the mark.
 * Throws `CommandRefused` if the service is running, and the errors of `createBackup`.
 */
export const createFinalBackup = async (
  config: Config,
  asked: Asked,
  options: Options,
): Promise<MadeBackup> => {
  await refuseTaken(asked.path)
  const before = await byOwner(config, options, async (client, url) => {
    const found = await readMark(client)
    if (found?.state === 'arriving') throw new ConfigError(markSentences(found).join('. '))
    await writeMark(client, { backupId: randomUUID(), state: 'left', elsewhere: resolve(asked.path) })
    await refuseRunning({ variable: 'DATABASE_URL', url }, 'make the final backup').catch(
      async (error: unknown) => {
        if (found === null) await removeMark(client)
        throw error
      },
    )
    return found
  })
  try {
    const foundation = await openFoundation(config, { ...options, anyMark: true })
    try {
      return await createBackup(foundation, asked)
    } finally {
      await foundation.close()
    }
  } catch (error) {
    if (before === null) await byOwner(config, options, removeMark)
    throw error
  }
}

const byOwner = <Value>(
  config: Config,
  options: Options,
  work: (client: pg.Client, url: string) => Promise<Value>,
): Promise<Value> =>
  openingWith(async (closing) => {
    const { url, migrationUrl } = await openDatabase(config, { ...options, closing })
    const client = new pg.Client({ connectionString: migrationUrl, application_name: 'final-backup' })
    client.on('error', () => undefined)
    await client.connect()
    closing.add(() => client.end())
    const value = await work(client, url)
    await closing.close()
    return value
  })
