import { closeSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { codeOf, type Place } from './postgres-cluster.ts'

/**
 * Who owns the embedded PostgreSQL: the process that holds the exclusive lock on `postgres.lock`. The kernel drops that
 * lock when its holder dies, however it dies, so a stale lock cannot exist; a file holding a pid could outlive its process
 * and be mistaken for another program that got the same number.
 */
export type Lock = { release(): void }

/**
 * Null while another process, or another server of this one, holds it.
 *
 * SQLite is here for its file locks only: they are the kernel's, work on every platform and end with their process. Node has
 * no flock of its own. `journal_mode=memory` keeps SQLite from leaving a journal beside the lock.
 *
 * These locks belong to the process, and closing any descriptor of the file drops them: nothing else here may open it.
 */
export const takeLock = (place: Place): Lock | null => {
  let database: DatabaseSync | null = null
  try {
    createLockFile(place)
    const opened = new DatabaseSync(place.lock, { timeout: 0 })
    database = opened
    opened.exec('pragma journal_mode=memory')
    opened.exec('begin exclusive')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (error) {
    database?.close()
    if (error instanceof Error && /database is locked/.test(error.message)) return null
    throw new Error(
      `Cannot lock ${place.lock}. DATA_DIR ${place.dataDir} must be writable by this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system with locks.',
      { cause: error },
    )
  }
}

/** SQLite would create it readable by all, and any reader could keep us out. An existing file is not opened, see `takeLock`. */
const createLockFile = (place: Place): void => {
  try {
    closeSync(openSync(place.lock, 'wx', 0o600))
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}
