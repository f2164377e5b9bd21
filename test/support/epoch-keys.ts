/** Epoch keys in a test's own database and directory. */
import type pg from 'pg'
import { makeDataDir } from '../../src/foundation/data-dir.ts'
import { createEpochKeyFiles } from '../../src/guard/secrets/epoch-key-files.ts'
import { type EpochKeys, openEpochKeys } from '../../src/guard/secrets/epoch-keys.ts'

export const secretKey = 'the secret key of a test, long enough to be one'

/** The key directory of one process. */
export const processKeys = ({
  pool,
  dir,
  clock = Date,
  secretKey: key = secretKey,
  watchMs,
}: {
  pool: Pick<pg.Pool, 'query'>
  dir: string
  clock?: { now(): number }
  secretKey?: string
  watchMs?: number
}): EpochKeys =>
  openEpochKeys({
    pool,
    files: createEpochKeyFiles({ dir, makeDir: () => makeDataDir(dir, 'KEY_DIR'), secretKey: key }),
    clock,
    ...(watchMs === undefined ? {} : { watchMs }),
    logger: { info: () => undefined, error: () => undefined },
  })
