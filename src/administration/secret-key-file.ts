import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { secretKeyFile, secretKeysOf, writeSecretKeys } from '../foundation/secret-key.ts'
import { ringKeyOf } from '../guard/secret-ring.ts'

/**
 * Writes what `change` makes of the keys in the file of DATA_DIR; where SECRET_KEY is set there is none, and nothing happens. Of two
 * commands at once the second is given what the first wrote. `change` may throw: then nothing is written.
 */
export const changeKeyFile = async (
  {
    foundation: { pool },
    config,
  }: { readonly foundation: Pick<Foundation, 'pool'>; readonly config: Config },
  change: (keys: readonly string[]) => readonly string[],
): Promise<void> => {
  const path = secretKeyFile(config)
  if (path === null) return
  const client = await pool.connect()
  try {
    await client.query('begin')
    await client.query('lock table secret_keys in exclusive mode')
    const changed = change(await secretKeysOf(config))
    await writeSecretKeys(
      path,
      changed.filter((key) => !config.SECRET_KEYS_OLD.includes(key)),
    )
  } finally {
    await client.query('rollback').catch(() => undefined)
    client.release()
  }
}

/** Takes keys out of the file, by their ids. */
export const takeOutOfKeyFile = (
  of: Parameters<typeof changeKeyFile>[0],
  ids: readonly string[],
): Promise<void> => changeKeyFile(of, (keys) => keys.filter((key) => !ids.includes(ringKeyOf(key).id)))
