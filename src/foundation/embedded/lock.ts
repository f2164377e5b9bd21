import { closeSync, existsSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Place } from './cluster.ts'

/**
 * The owner of the embedded PostgreSQL is the process that holds the exclusive lock on `postgres.lock`. The kernel drops
 * the lock when its holder dies, so a stale lock cannot exist. `postmaster.pid` cannot serve for this: it names the server,
 * which may outlive its owner.
 */
export type Lock = { release(): void }

/**
 * Null while another process, or another server of this process, holds the lock.
 *
 * Node has no flock. SQLite is used for its file locks only: they are the kernel's, and they work on every platform. They
 * belong to the process, and closing any descriptor of the file drops them: no other code may open an existing lock file.
 */
export const takeLock = (place: Place): Lock | null => {
  let database: DatabaseSync | undefined
  try {
    // SQLite would let everyone read the file, and every reader could keep us out. 'a': another process may be first.
    if (!existsSync(place.lock)) closeSync(openSync(place.lock, 'a', 0o600))
    const opened = new DatabaseSync(place.lock, { timeout: 0 })
    database = opened
    // No journal file beside the lock.
    opened.exec('pragma journal_mode=memory')
    opened.exec('begin exclusive')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (cause) {
    database?.close()
    if (cause instanceof Error && /database is locked/.test(cause.message)) return null
    throw new Error(
      `Cannot lock ${place.lock}. DATA_DIR ${place.dataDir} must be writable by this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system with locks.',
      { cause },
    )
  }
}
