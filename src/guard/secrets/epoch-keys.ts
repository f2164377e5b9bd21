import pg from 'pg'
import type { Logger } from 'pino'
import { Unavailable } from '../../event-log/port.ts'
import { type EpochKey, EpochKeyFault, type EpochKeyFiles, epochOfKeyId } from './epoch-key-files.ts'
import { destroyedByMs, epochOf } from './epochs.ts'
import type { EpochSealer } from './secrets.ts'

/**
 * The key of the current epoch, which seals all personal data. `epochs.ts` defines when epochs begin and end. `epoch-key-files.ts` stores the keys
 * in KEY_DIR.
 *
 * The table `epoch_keys` lists the keys under which data in the database is sealed. A listed key is lost if KEY_DIR contains neither the key nor
 * a mark that it was destroyed. While a key is lost, nothing is sealed and no key is created, because a new key would hide the loss. A database
 * without listed keys is new. If a process crashes after it created a key and before it listed the key, the next process uses that key.
 */
export type EpochKeys = {
  sealer(purpose: string): EpochSealer
  /** Returns the key of the current epoch, and creates it if it does not exist. Rejects with `EpochKeyFault`. */
  current(): Promise<EpochKey>
  /** Checks now, and then repeatedly, that the current key is available. Rejects with `EpochKeyFault`. */
  watch(): Promise<void>
  /** For the readiness check: returns the reason why the current key is not available, or null if it is. */
  failure(): Error | null
  /** Returns every key that exists or should exist. */
  list(): Promise<readonly KnownKey[]>
  /** Destroys a key that is no longer needed, and records the destruction in the database. */
  settleDestroyed(key: KnownKey): Promise<void>
  /** Returns the time after which no copy of data that is deleted now can be opened. */
  lastCopyGoneByMs(): Promise<number>
  close(): void
}

/** `present`: in the directory. `destroyed`: destroyed on purpose, but not yet recorded in the database. `lost`: missing without a mark. */
type KnownKey = {
  readonly id: string
  readonly epoch: number
  readonly state: 'present' | 'destroyed' | 'lost'
}

/** How often a process checks whether the key still exists, and whether the next epoch has begun. */
const watchMsDefault = 5_000
const uniqueViolation = '23505'

type Settings = {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly files: EpochKeyFiles
  readonly clock: { now(): number }
  readonly logger: Pick<Logger, 'info' | 'error'>
  readonly watchMs: number
}

type Held = Settings & {
  /** The keys in memory. Each check removes those that no longer exist. */
  readonly opened: Map<string, EpochKey>
  key: EpochKey | null
  fault: Error | null
  loading: Promise<EpochKey> | null
  watching: NodeJS.Timeout | undefined
  seenAtMs: number
}

export const openEpochKeys = (
  settings: Omit<Settings, 'watchMs'> & { readonly watchMs?: number },
): EpochKeys => {
  const held: Held = {
    ...settings,
    watchMs: settings.watchMs ?? watchMsDefault,
    opened: new Map(),
    key: null,
    fault: null,
    loading: null,
    watching: undefined,
    seenAtMs: Number.NEGATIVE_INFINITY,
  }
  return {
    sealer: (purpose) => sealerFor(held, purpose),
    current: () => current(held),
    watch: async () => {
      held.seenAtMs = Number.NEGATIVE_INFINITY
      await current(held)
      held.watching ??= setInterval(() => void look(held), held.watchMs).unref()
    },
    failure: () => failureOf(held),
    list: () => list(held),
    settleDestroyed: (key) => settleDestroyed(held, key),
    lastCopyGoneByMs: () => lastCopyGoneByMs(held),
    close: () => clearInterval(held.watching),
  }
}

const list = async ({ pool, files }: Settings): Promise<readonly KnownKey[]> => {
  const { rows } = await pool.query<{ key_id: string; epoch: number }>(
    'select key_id, epoch from epoch_keys where destroyed_at is null',
  )
  const { keys, destroyed } = await files.list()
  const present = new Set(keys.map(({ id }) => id))
  const absent = rows.filter(({ key_id: id }) => !present.has(id))
  return [
    ...keys.map(({ id, epoch }): KnownKey => ({ id, epoch, state: 'present' })),
    ...absent.map(
      ({ key_id: id, epoch }): KnownKey => ({
        id,
        epoch,
        state: destroyed.has(id) ? 'destroyed' : 'lost',
      }),
    ),
  ]
}

const lostKeys = async (settings: Settings): Promise<readonly KnownKey[]> =>
  (await list(settings)).filter(({ state }) => state === 'lost')

const load = async (settings: Settings, epoch: number): Promise<EpochKey> => {
  const { pool, files, logger } = settings
  // Checked twice, because a key can be destroyed between the query and the reading of the directory.
  if ((await lostKeys(settings)).length > 0) {
    const lost = await lostKeys(settings)
    if (lost.length > 0) throw new EpochKeyFault(lostMessage(lost))
  }
  if (files.readSync(epoch) === null) {
    await files.create(epoch)
    logger.info({ epoch }, 'epoch keys: created the key of a new epoch')
  }
  const made = files.readSync(epoch)
  if (made === null) throw new EpochKeyFault(`the key of epoch ${epoch} was created, but no longer exists`)
  await register(pool, made)
  return made
}

/** A key that exists only in memory must not be used, because its data would be lost with the process. */
const isStillThere = (held: Held, { id, epoch }: EpochKey): boolean => {
  if (performance.now() - held.seenAtMs < held.watchMs) return true
  const there = held.files.readSync(epoch)?.id === id
  if (there) held.seenAtMs = performance.now()
  return there
}

const current = async (held: Held): Promise<EpochKey> => {
  const { key, fault } = held
  const epoch = epochOf(held.clock.now())
  if (key?.epoch === epoch && fault === null && isStillThere(held, key)) return key
  held.loading ??= loadAndHold(held, epoch).finally(() => {
    held.loading = null
  })
  return held.loading
}

const loadAndHold = async (held: Held, epoch: number): Promise<EpochKey> => {
  try {
    const loaded = await load(held, epoch)
    if (held.fault !== null) held.logger.info('epoch keys: the current key is available again')
    held.fault = null
    held.key = loaded
    held.seenAtMs = performance.now()
    held.opened.set(loaded.id, loaded)
    return loaded
  } catch (error) {
    fail(held, error)
    throw error
  }
}

const fail = (held: Held, error: unknown): void => {
  const next = error instanceof Error ? error : new Error(String(error))
  // Logged once, and only while the key is watched. Callers of `current` receive the fault as an error.
  if (held.watching !== undefined && held.fault?.message !== next.message)
    held.logger.error({ err: next }, 'epoch keys: nothing can be sealed')
  held.fault = next
}

/** Checks that the current key exists, and removes from memory the keys that are no longer in the directory. */
const look = async (held: Held): Promise<void> => {
  const { key, opened, clock } = held
  try {
    const { keys } = await held.files.list()
    const present = new Set(keys.map(({ id }) => id))
    for (const id of opened.keys()) if (!present.has(id)) opened.delete(id)
    // Keys of past epochs are destroyed as planned. Only a missing current key is a fault.
    if (key?.epoch === epochOf(clock.now()) && !present.has(key.id))
      fail(held, new EpochKeyFault(lostMessage([key])))
    await current(held)
  } catch (error) {
    fail(held, error)
  }
}

const openedKey = (held: Held, id: string): EpochKey | null => {
  const known = held.opened.get(id)
  if (known !== undefined) return known
  const epoch = epochOfKeyId(id)
  try {
    const read = epoch === null ? null : held.files.readSync(epoch)
    if (read?.id !== id) return null
    held.opened.set(id, read)
    return read
  } catch (error) {
    fail(held, error)
    return null
  }
}

const sealerFor = (held: Held, purpose: string): EpochSealer => ({
  seal: async (text, context) => {
    const { id, sealer } = await current(held).catch((cause: unknown) => {
      throw new Unavailable(`nothing can be sealed: ${cause instanceof Error ? cause.message : cause}`, {
        cause,
      })
    })
    return `${id}.${sealer(purpose).seal(text, context)}`
  },
  open: (sealed, context) => {
    const end = sealed.indexOf('.')
    const under = end < 0 ? null : openedKey(held, sealed.slice(0, end))
    return under === null ? null : under.sealer(purpose).open(sealed.slice(end + 1), context)
  },
})

const failureOf = (held: Held): Error | null => {
  const { key, fault } = held
  if (key !== null && fault === null && key.epoch !== epochOf(held.clock.now())) void look(held)
  return held.fault ?? (key === null ? new Error('the current epoch key has not been read yet') : null)
}

const settleDestroyed = async (
  { pool, files, logger, opened }: Held,
  { id, epoch, state }: KnownKey,
): Promise<void> => {
  // The bytes of a destroyed key can still exist if the process was killed.
  if (state !== 'lost') await files.destroy({ id, epoch })
  opened.delete(id)
  await pool.query('update epoch_keys set destroyed_at = now() where key_id = $1 and destroyed_at is null', [
    id,
  ])
  logger.info({ key: id }, 'epoch keys: destroyed a key')
}

const lastCopyGoneByMs = async (held: Held): Promise<number> => {
  const epochs = (await list(held)).filter(({ state }) => state !== 'destroyed').map(({ epoch }) => epoch)
  return destroyedByMs(Math.max(epochOf(held.clock.now()), ...epochs))
}

/** Must be called before anything is sealed under the key, so that the database lists every key that its data needs. */
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
  // The unique index on epochs refuses a second key. It can also refuse the same key, registered by two processes at the same time.
  if (refused !== undefined && rows[0] === undefined)
    throw new EpochKeyFault(
      `it contains a different key of epoch ${epoch} than the directory of other processes. Set KEY_DIR to the same directory for all processes.`,
      { cause: refused },
    )
  if (rows[0]?.destroyed === true)
    throw new EpochKeyFault(
      `the key ${id} was destroyed, but exists again. If the directory is an older copy, restore the current one. Otherwise, correct this host's clock.`,
    )
}

const lostMessage = (lost: readonly { readonly id: string }[]): string => {
  const ids = lost.map(({ id }) => id).join(', ')
  return (
    `the key${lost.length === 1 ? '' : 's'} ${ids} under which this database's data is sealed ${lost.length === 1 ? 'is' : 'are'} missing, so no new key is created. ` +
    'Mount or restore the directory, which all processes must share. If it is lost permanently, run "epoch-key abandon" to give up the data that is sealed under it.'
  )
}
