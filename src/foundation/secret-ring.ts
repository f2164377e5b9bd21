import { hostname } from 'node:os'
import type pg from 'pg'
import type { Logger } from 'pino'
import { ulid } from 'ulid'
import { type Config, ConfigError } from '../config.ts'
import { createOutage } from '../event-log/outage.ts'
import { type ChangingRing, createChangingRing, ringKeyOf } from '../guard/secret-ring.ts'
import { sameHmac } from '../guard/secrets.ts'
import { secretKeyFile, secretKeysOf } from './secret-key.ts'

/**
 * The ring of SECRET_KEYs of this process, as the database has it. The database knows every key the installation had, by a
 * hash under a purpose of its own, and which of them is in use: a process may be started with the next key before that is
 * in use, and works under the former one until every process has both. So processes that are started one after the
 * other check what each other makes.
 */

/** An event by which a place in the log is recognized: in another log it is elsewhere. */
export type PlaceOfKey = { readonly position: bigint; readonly eventId: string }

/** A key the installation has or had. */
export type KnownSecretKey = {
  readonly id: string
  /** From 1, in the order in which they came into use. */
  readonly number: number
  readonly state: 'current' | 'needed' | 'left'
  readonly hash: string
  /** What depends on it, as it was counted last. */
  readonly under: readonly string[]
  readonly inUseFrom: Date | null
  /** The last event of the log when it came into use; null: from the beginning. */
  readonly from: PlaceOfKey | null
  /** The last one when no process used it any more; null: not yet. */
  readonly until: PlaceOfKey | null
  /** Its coming into use is in the event log. */
  readonly recorded: boolean
  /** What can be made anew under it was. */
  readonly renewed: boolean
}

type Queries = Pick<pg.Pool, 'query'>

/** More than an installation has in a century of monthly rotations. */
const knownMax = 10_000

/** Oldest first. */
export const knownSecretKeys = async (pool: Queries): Promise<readonly KnownSecretKey[]> => {
  const { rows } = await pool.query<{
    key_id: string
    number: number
    state: KnownSecretKey['state']
    hash: string
    under: string[]
    in_use_from: Date | null
    position_from: string | null
    event_from: string | null
    position_until: string | null
    event_until: string | null
    recorded: boolean
    renewed: boolean
  }>(
    `select key_id, number, state, hash, under, nullif(in_use_from, '-infinity') as in_use_from, position_from, event_from,
            position_until, event_until, recorded, renewed
       from secret_keys order by number limit $1`,
    [knownMax],
  )
  return rows.map((row) => ({
    id: row.key_id,
    number: row.number,
    state: row.state,
    hash: row.hash,
    under: row.under,
    inUseFrom: row.in_use_from,
    from: placeOfKey(row.position_from, row.event_from),
    until: placeOfKey(row.position_until, row.event_until),
    recorded: row.recorded,
    renewed: row.renewed,
  }))
}

const placeOfKey = (position: string | null, eventId: string | null): PlaceOfKey | null =>
  position === null || eventId === null ? null : { position: BigInt(position), eventId }

/**
 * The ring of the keys this process was given, with the key in use that the database names. The first start of an
 * installation names its key.
 *
 * Throws `ConfigError` where the key in use is not among them (every issued key would be refused, profiles could not be
 * opened, and erased people would not be recognized), and where one is missing that something still depends on.
 */
export const secretRingOf = async (
  pool: Queries,
  config: Config,
  secretKeys: readonly string[],
): Promise<ChangingRing> => {
  const ring = createChangingRing(secretKeys.map(ringKeyOf))
  const { check } = ring.current()
  await pool.query('insert into secret_key_check (hash) values ($1) on conflict do nothing', [check])
  // A process of the release before may have been the first.
  await pool.query(
    `insert into secret_keys (number, key_id, hash, state, in_use_from, recorded, renewed)
     select 1, left(encode(sha256(hash::bytea), 'hex'), 12), hash, 'current', '-infinity', true, true from secret_key_check
      where not exists (select from secret_keys)
     on conflict do nothing`,
  )
  const known = await knownSecretKeys(pool)
  refuseMissing(config, ring, known)
  ring.use(inUseOf(known), known[0]?.id)
  return ring
}

/** What a ring is told: every key something depends on, the one in use last. */
const inUseOf = (known: readonly Pick<KnownSecretKey, 'id' | 'state'>[]): string[] =>
  known.filter(({ state }) => state !== 'left').map(({ id }) => id)

const refuseMissing = (config: Config, ring: ChangingRing, known: readonly KnownSecretKey[]): void => {
  const isGiven = ({ hash }: KnownSecretKey): boolean =>
    ring.given().some(({ check }) => sameHmac(check, hash))
  const file = secretKeyFile(config)
  const current = known.find(({ state }) => state === 'current')
  if (current !== undefined && !isGiven(current))
    throw new ConfigError(
      `SECRET_KEY: this database was set up with another one than ${file === null ? 'this' : `that in ${file}`} (${current.id}), ` +
        'and with this one every issued key would be refused. Start with the old key; nothing was changed.',
    )
  const missing = known.find((key) => key.state === 'needed' && !isGiven(key))
  if (missing === undefined) return
  const under = missing.under.length === 0 ? 'what was made under it' : missing.under.join(', ')
  throw new ConfigError(
    `SECRET_KEYS_OLD: the key ${missing.id} is not there and is still needed for ${under}. ` +
      `${file === null ? 'Add it to SECRET_KEYS_OLD' : `Put it back into ${file}, on a line of its own after the first, or into SECRET_KEYS_OLD`}; nothing was changed.`,
  )
}

/** How often a process says which keys it has, and looks which one is in use. */
export const ringLookMs = 2_000
const forgottenMs = 600_000

const lookStatement = `
  with own as (
    insert into secret_key_holders as h (holder, host, pid, key_ids, current_key_id) values ($1, $2, $3, $4, $5)
    on conflict (holder) do update
       set key_ids = excluded.key_ids, current_key_id = excluded.current_key_id, seen_at = now()
  ), forgotten as (
    delete from secret_key_holders where holder <> $1 and seen_at < now() - ${forgottenMs} * interval '1 ms'
  )
  select key_id as id, state from secret_keys order by number limit ${knownMax}`

/** The ring of a process that runs. */
export type OpenSecretRing = {
  readonly ring: ChangingRing
  /** By which `liveHolders` knows this process. */
  readonly holder: string
  /** Looks now. Rejects where the database does not answer. */
  look(): Promise<void>
  close(): Promise<void>
}

/** As `secretRingOf`, and follows the database, and the file in DATA_DIR, while the process runs. */
export const openSecretRing = async ({
  pool,
  config,
  secretKeys,
  logger,
}: {
  readonly pool: Queries
  readonly config: Config
  readonly secretKeys: readonly string[]
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error' | 'fatal'>
}): Promise<OpenSecretRing> => {
  const ring = await secretRingOf(pool, config, secretKeys)
  const holder = ulid()
  let inUse = ring.current().id
  const turnTo = (known: readonly Pick<KnownSecretKey, 'id' | 'state'>[]): void => {
    const has = ring.use(inUseOf(known), known[0]?.id)
    const now = known.find(({ state }) => state === 'current')?.id ?? inUse
    if (now === inUse) return
    inUse = now
    if (has) logger.info({ secretKey: now }, 'SECRET_KEY: another key is in use now')
    else
      logger.fatal(
        { secretKey: now },
        'SECRET_KEY: a key is in use that this process does not have: it answers nothing until it is started with it',
      )
  }
  const look = async (): Promise<void> => {
    if (secretKeyFile(config) !== null) {
      const keys = await secretKeysOf(config)
      const ids = keys.map((key) => ringKeyOf(key))
      const same = ids.length === ring.given().length && ids.every(({ id }, n) => id === ring.given()[n]?.id)
      if (!same) ring.give(ids)
    }
    const { rows } = await pool.query<Pick<KnownSecretKey, 'id' | 'state'>>(lookStatement, [
      ...[holder, hostname().slice(0, 255), process.pid, ring.given().map(({ id }) => id), inUse],
    ])
    turnTo(rows)
  }
  await look()
  const outage = createOutage({ logger, what: 'SECRET_KEY: looking which key is in use' })
  let looking: Promise<void> = Promise.resolve()
  let underWay = false
  const timer = setInterval(() => {
    if (underWay) return
    underWay = true
    looking = look()
      // The database is away, or the file is: what is known stays, and the next look tells.
      .then(outage.works, outage.failed)
      .finally(() => {
        underWay = false
      })
  }, ringLookMs).unref()
  return {
    ring,
    holder,
    look,
    close: async () => {
      clearInterval(timer)
      await looking
      await pool.query('delete from secret_key_holders where holder = $1', [holder]).catch(() => undefined)
    },
  }
}

type SecretKeyHolder = {
  readonly holder: string
  readonly host: string
  readonly pid: number
  readonly keyIds: readonly string[]
  readonly currentKeyId: string
}

/** Five looks that did not come: it has ended, or will find out by itself which key is in use. */
const liveMs = 5 * ringLookMs
const holdersMax = 1_000

/** Every process that runs, the command line's own too. */
export const liveHolders = async (pool: Queries): Promise<readonly SecretKeyHolder[]> => {
  const { rows } = await pool.query<{
    holder: string
    host: string
    pid: number
    key_ids: string[]
    current_key_id: string
  }>(
    `select holder, host, pid, key_ids, current_key_id from secret_key_holders
      where seen_at > now() - $1 * interval '1 ms' order by host, pid limit $2`,
    [liveMs, holdersMax],
  )
  return rows.map(({ key_ids: keyIds, current_key_id: currentKeyId, ...rest }) => ({
    ...rest,
    keyIds,
    currentKeyId,
  }))
}
