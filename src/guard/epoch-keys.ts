import pg from 'pg'
import type { Logger } from 'pino'
import { Unavailable } from '../event-log/port.ts'
import { type EpochKey, EpochKeyFault, type EpochKeyFiles, epochOfKeyId } from './epoch-key-files.ts'
import { destroyedByMs, epochOf } from './epochs.ts'
import type { EpochSealer } from './secrets.ts'

/**
 * The key of the current epoch, which seals everything about a person. `epochs.ts` says when epochs begin and end,
 * `epoch-key-files.ts` what is in KEY_DIR.
 *
 * The database remembers which keys its data are under (`epoch_keys`). A key it names that is neither in the directory nor
 * marked there as destroyed is lost. Until that is settled, nothing is sealed and no key is made: a new key beside data
 * that need an old one would hide the loss. A database that names none is a new one. A database restored from before
 * a key was destroyed finds the mark: what is under that key is gone, as promised. A process may die after it made a key and
 * before the database knew of it. Nothing is under that key then, and the next process takes it.
 */
export type EpochKeys = {
  sealer(purpose: string): EpochSealer
  /** The key to seal under now, made if this process is the first to need it. Rejects with `EpochKeyFault`. */
  current(): Promise<EpochKey>
  /** Makes sure of the current key, now and from now on. Rejects with `EpochKeyFault`. */
  watch(): Promise<void>
  /** For readiness. Null while the current key is at hand. */
  failure(): Error | null
  /** Every key that exists, or should. */
  list(): Promise<readonly KnownKey[]>
  /** Destroys a key nothing needs any more, or settles that it is gone. */
  settleDestroyed(key: KnownKey): Promise<void>
  /** From when on a value that is sealed today, and deleted today, can be opened by no one. */
  lastCopyGoneByMs(): Promise<number>
  close(): void
}

/**
 * `present`: in the directory. `destroyed`: on purpose, and the database does not know it yet. `lost`: not there, for no known reason.
 */
type KnownKey = {
  readonly id: string
  readonly epoch: number
  readonly state: 'present' | 'destroyed' | 'lost'
}

/** How often a process looks whether the key is still there, or the next epoch has begun. */
const watchMsDefault = 5_000
const uniqueViolation = '23505'

export const openEpochKeys = ({
  pool,
  files,
  clock,
  logger,
  watchMs = watchMsDefault,
}: {
  pool: Pick<pg.Pool, 'query'>
  files: EpochKeyFiles
  clock: { now(): number }
  logger: Pick<Logger, 'info' | 'error'>
  watchMs?: number
}): EpochKeys => {
  /** Read once: what was destroyed meanwhile goes at the next watch. */
  const opened = new Map<string, EpochKey>()
  let key: EpochKey | null = null
  let fault: Error | null = null
  let loading: Promise<EpochKey> | null = null
  let watching: NodeJS.Timeout | undefined
  let seenAtMs = Number.NEGATIVE_INFINITY

  const list = async (): Promise<readonly KnownKey[]> => {
    const { rows } = await pool.query<{ key_id: string; epoch: number }>(
      'select key_id, epoch from epoch_keys where destroyed_at is null',
    )
    const { keys, destroyed } = await files.list()
    const present = new Set(keys.map(({ id }) => id))
    return [
      ...keys.map(({ id, epoch }): KnownKey => ({ id, epoch, state: 'present' })),
      ...rows
        .filter(({ key_id: id }) => !present.has(id))
        .map(
          ({ key_id: id, epoch }): KnownKey => ({
            id,
            epoch,
            state: destroyed.has(id) ? 'destroyed' : 'lost',
          }),
        ),
    ]
  }

  const lostKeys = async (): Promise<readonly KnownKey[]> =>
    (await list()).filter(({ state }) => state === 'lost')

  const load = async (epoch: number): Promise<EpochKey> => {
    // A second look: a key may be destroyed between the database's answer and the directory's.
    if ((await lostKeys()).length > 0) {
      const lost = await lostKeys()
      if (lost.length > 0) throw new EpochKeyFault(lostMessage(lost))
    }
    if (files.readSync(epoch) === null) {
      await files.create(epoch)
      logger.info({ epoch }, 'epoch keys: a new epoch begins')
    }
    const current = files.readSync(epoch)
    if (current === null) throw new EpochKeyFault(`the key of epoch ${epoch} was made and is not there`)
    await register(pool, current)
    return current
  }

  /** What was sealed under a key that is in memory alone would be lost with the process. */
  const isStillThere = ({ id, epoch }: EpochKey): boolean => {
    if (performance.now() - seenAtMs < watchMs) return true
    const there = files.readSync(epoch)?.id === id
    if (there) seenAtMs = performance.now()
    return there
  }

  const current = async (): Promise<EpochKey> => {
    const epoch = epochOf(clock.now())
    if (key?.epoch === epoch && fault === null && isStillThere(key)) return key
    loading ??= load(epoch)
      .then(
        (loaded) => {
          if (fault !== null) logger.info('epoch keys: the current key is at hand again')
          fault = null
          key = loaded
          seenAtMs = performance.now()
          opened.set(loaded.id, loaded)
          return loaded
        },
        (error: unknown) => {
          fail(error)
          throw error
        },
      )
      .finally(() => {
        loading = null
      })
    return loading
  }

  const fail = (error: unknown): void => {
    const next = error instanceof Error ? error : new Error(String(error))
    // A caller gets the fault as an error. A fault found between calls is logged here, once.
    if (watching !== undefined && fault?.message !== next.message)
      logger.error({ err: next }, 'epoch keys: nothing can be sealed')
    fault = next
  }

  /** A key that is gone from the directory is gone from memory too, and the current one must not be gone. */
  const look = async (): Promise<void> => {
    try {
      const { keys } = await files.list()
      const present = new Set(keys.map(({ id }) => id))
      for (const id of opened.keys()) if (!present.has(id)) opened.delete(id)
      // That of a past epoch was destroyed, as it had to be.
      if (key?.epoch === epochOf(clock.now()) && !present.has(key.id))
        fail(new EpochKeyFault(lostMessage([key])))
      await current()
    } catch (error) {
      fail(error)
    }
  }

  const openedKey = (id: string): EpochKey | null => {
    const known = opened.get(id)
    if (known !== undefined) return known
    const epoch = epochOfKeyId(id)
    try {
      const read = epoch === null ? null : files.readSync(epoch)
      if (read?.id !== id) return null
      opened.set(id, read)
      return read
    } catch (error) {
      fail(error)
      return null
    }
  }

  return {
    sealer: (purpose) => ({
      seal: async (text, context) => {
        const { id, sealer } = await current().catch((cause: unknown) => {
          throw new Unavailable(`nothing can be sealed: ${cause instanceof Error ? cause.message : cause}`, {
            cause,
          })
        })
        return `${id}.${sealer(purpose).seal(text, context)}`
      },
      open: (sealed, context) => {
        const end = sealed.indexOf('.')
        const under = end < 0 ? null : openedKey(sealed.slice(0, end))
        return under === null ? null : under.sealer(purpose).open(sealed.slice(end + 1), context)
      },
    }),
    current,
    watch: async () => {
      seenAtMs = Number.NEGATIVE_INFINITY
      await current()
      watching ??= setInterval(() => void look(), watchMs).unref()
    },
    failure: () => {
      if (key !== null && fault === null && key.epoch !== epochOf(clock.now())) void look()
      return fault ?? (key === null ? new Error('the current epoch key is not read yet') : null)
    },
    list,
    settleDestroyed: async ({ id, epoch, state }) => {
      if (state === 'present') await files.destroy({ id, epoch })
      opened.delete(id)
      await pool.query(
        'update epoch_keys set destroyed_at = now() where key_id = $1 and destroyed_at is null',
        [id],
      )
      logger.info({ key: id }, 'epoch keys: a key is destroyed')
    },
    lastCopyGoneByMs: async () => {
      const epochs = (await list()).filter(({ state }) => state !== 'destroyed').map(({ epoch }) => epoch)
      return destroyedByMs(Math.max(epochOf(clock.now()), ...epochs))
    },
    close: () => clearInterval(watching),
  }
}

/** Done before anything is sealed under the key, so that the database knows every key its data may be under. */
const register = async (pool: Pick<pg.Pool, 'query'>, { id, epoch }: EpochKey): Promise<void> => {
  let refused: unknown
  try {
    await pool.query(
      'insert into epoch_keys (key_id, epoch) values ($1, $2) on conflict (key_id) do nothing',
      [id, epoch],
    )
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || error.code !== uniqueViolation) throw error
    refused = error
  }
  const { rows } = await pool.query<{ destroyed: boolean }>(
    'select destroyed_at is not null as destroyed from epoch_keys where key_id = $1',
    [id],
  )
  // Of two that register the same key at once one may be refused by the index of the epoch before it sees the other's row.
  if (refused !== undefined && rows[0] === undefined)
    throw new EpochKeyFault(
      `it holds another key of epoch ${epoch} than other processes use. All processes share one directory: name that one.`,
      { cause: refused },
    )
  if (rows[0]?.destroyed === true)
    throw new EpochKeyFault(
      `the key ${id} was destroyed and is there again. Set this host's clock right, or put the directory of today back, not a copy of it.`,
    )
}

const lostMessage = (lost: readonly { readonly id: string }[]): string => {
  const ids = lost.map(({ id }) => id).join(', ')
  return (
    `the key${lost.length === 1 ? '' : 's'} ${ids} that this database's data are sealed under ${lost.length === 1 ? 'is' : 'are'} not there, and no new one is made beside them. ` +
    'Mount or restore the directory; all processes share one. Where it is lost for good, "epoch-key abandon" gives up what is sealed under it.'
  )
}
