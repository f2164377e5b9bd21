import { createHash } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The key directory for a test's database: processes that share a database share its keys. */
export const keyDirOf = (databaseUrl: string): string =>
  join(tmpdir(), `keys-${createHash('sha256').update(databaseUrl).digest('hex').slice(0, 16)}`)
