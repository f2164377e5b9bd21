import { closeSync, existsSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Place } from './cluster.ts'

/** A lock of this process on a file. The kernel drops it when the process dies, so a stale lock cannot exist. */
export type Lock = { release(): void }

/**
 * The owner of the embedded PostgreSQL is the process that holds the exclusive lock on `postgres.lock`. `postmaster.pid`
 * cannot serve for this: it names the server, which may outlive its owner.
 *
 * Null while another process, or another server of this process, holds the lock.
 */
export const takeLock = (place: Place): Lock | null => lockFile(place, place.lock, 'exclusive')

/**
 * Locks a file of this place, which is made where it is missing. `shared`: beside others that do the same. Null: it is locked.
 *
 * Node has no flock. SQLite is used for its file locks only: they are the kernel's, and they work on every platform. They
 * belong to the process, and closing any descriptor of the file drops them: no other code may open an existing lock file.
 */
export const lockFile = (place: Place, path: string, how: 'exclusive' | 'shared'): Lock | null => {
  let database: DatabaseSync | undefined
  try {
    // SQLite would let everyone read the file, and every reader could keep us out. 'a': another process may be first.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600))
    const opened = new DatabaseSync(path, { timeout: 0 })
    database = opened
    // No journal file beside the lock.
    opened.exec('pragma journal_mode=memory')
    opened.exec(how === 'exclusive' ? 'begin exclusive' : 'begin; select count(*) from sqlite_master')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (cause) {
    database?.close()
    if (cause instanceof Error && /database is locked/.test(cause.message)) return null
    throw new Error(
      `Cannot lock ${path}. DATA_DIR ${place.dataDir} must be writable by this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system with locks.',
      { cause },
    )
  }
}
