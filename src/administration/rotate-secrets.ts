import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { freshSecretKey, secretKeyFile, secretKeysOf } from '../foundation/secret-key.ts'
import {
  type KnownSecretKey,
  knownSecretKeys,
  liveHolders,
  type PlaceOfKey,
  ringLookMs,
} from '../foundation/secret-ring.ts'
import type { KeyedUse } from '../guard/keyed-use.ts'
import { type RingKey, ringKeyOf, ringKeysMax } from '../guard/secret-ring.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { recordOnce, recordRenewed } from './secret-key-events.ts'
import { changeKeyFile, takeOutOfKeyFile } from './secret-key-file.ts'
import { underKeys, underText } from './secret-keys.ts'

/**
 * Puts another SECRET_KEY into use and makes anew under it what can be. It may be interrupted anywhere and is taken up where it
 * was by the next call: a key comes into use in one statement, and everything after that looks at what it finds.
 *
 * 1. Every process that runs has the key. In DATA_DIR it is made here, and they read it there.
 * 2. It is in use: the database says so, and processes turn to it within some seconds.
 * 3. What can be made anew is, in portions, beside live traffic.
 * 4. A former key on which nothing depends any more may leave.
 */

export type Rotating = {
  readonly foundation: Foundation
  readonly config: Config
  readonly uses: (known: readonly KnownSecretKey[]) => readonly KeyedUse[]
  readonly actor: string
  readonly progress: (line: string) => void
}

export type Rotation = {
  readonly secretKey: string
  /** Null: no other key came into use, what was left of an earlier rotation was done. */
  readonly former: string | null
  readonly renewed: readonly { readonly use: string; readonly count: number }[]
  /** Former keys on which nothing depends any more, by this call. */
  readonly left: readonly string[]
  readonly kept: readonly { readonly secretKey: string; readonly under: Under }[]
  /** Processes that still make things under the former key; then no key leaves. */
  readonly late: readonly string[]
}

type Under = Awaited<ReturnType<typeof underKeys>> extends ReadonlyMap<string, infer One> ? One : never

/** What a rotation would begin with. */
type RotationPlan = {
  readonly inUse: string
  /** The key that comes into use; `fresh`: one that is made then; null: none, what is left of an earlier rotation is done. */
  readonly next: RingKey | 'fresh' | null
}

/** Throws `CommandRefused` where there is no key to turn to. */
export const planRotation = async ({ foundation, config }: Rotating): Promise<RotationPlan> => {
  const known = await knownSecretKeys(foundation.pool)
  const [newest] = foundation.secretRing.ring.given()
  const inUse = known.find(({ state }) => state === 'current')
  if (newest === undefined || inUse === undefined) throw new CommandRefused('there is no SECRET_KEY')
  if (!known.some(({ id }) => id === newest.id)) return { inUse: inUse.id, next: newest }
  if (newest.id !== inUse.id)
    throw new CommandRefused(
      `${newest.id} was in use before and ${inUse.id} came after it: make a new key. Nothing was changed`,
    )
  if (!inUse.renewed || secretKeyFile(config) === null) return { inUse: inUse.id, next: null }
  refuseFull(await secretKeysOf(config))
  return { inUse: inUse.id, next: 'fresh' }
}

/** Looked at when it is planned as well, so that a dry run says so. */
const refuseFull = (keys: readonly string[]): void => {
  if (keys.length >= ringKeysMax)
    throw new CommandRefused(
      `${keys.length} keys are needed already, which is as many as there may be: "secrets status" says for what, and "secrets give-up" whether one can be given up. Nothing was changed`,
    )
}

export const rotateSecrets = async (rotating: Rotating, plan: RotationPlan): Promise<Rotation> => {
  const { foundation, progress } = rotating
  if (plan.next !== null) {
    const next = plan.next === 'fresh' ? await makeKey(rotating) : plan.next
    progress(`every process is to have ${next.id}`)
    await untilAllHave(rotating, next.id)
    await putIntoUse(rotating, next)
  }
  const secretKey = foundation.secrets.keyId()
  await recordRotated(rotating)
  progress(`${secretKey} is in use; every process is to turn to it`)
  const late = await untilAllUse(rotating, secretKey)
  if (late.length === 0) await settle(foundation)
  const renewed = await renewAll(rotating)
  const { left, kept } = await letLeave(rotating, late)
  await recordRenewed(rotating, {
    type: 'SecretsRenewed',
    data: {
      secret_key: secretKey,
      renewed: renewed.map((one) => ({ ...one })),
      left: [...left],
      kept: kept.map(({ secretKey: secret_key, under }) => ({ secret_key, under: recorded(under) })),
    },
  })
  await foundation.pool.query('update secret_keys set renewed = true where key_id = $1', [secretKey])
  return { secretKey, former: plan.next === null ? null : plan.inUse, renewed, left, kept, late }
}

const recorded = (under: Under) => under.map(({ use, count, more }) => ({ use, count, and_more: more }))

/** Makes a key in the file of DATA_DIR, before the others, from where processes read it. */
const makeKey = async (rotating: Rotating): Promise<RingKey> => {
  if (secretKeyFile(rotating.config) === null)
    throw new CommandRefused('SECRET_KEY is set: set it to the new key')
  const fresh = freshSecretKey()
  await changeKeyFile(rotating, (keys) => {
    refuseFull(keys)
    return [fresh, ...keys]
  })
  await rotating.foundation.secretRing.look()
  return ringKeyOf(fresh)
}

/** How long processes may take to find a key, and then to turn to it: several looks. */
const waitMaxMs = 10 * ringLookMs
const pauseMs = 200

type Holders = Awaited<ReturnType<typeof liveHolders>>

/** Those of the others that something does not hold for, after waiting for it. */
const lateHolders = async (
  { foundation: { pool, secretRing } }: Rotating,
  holds: (holder: Holders[number]) => boolean,
): Promise<string[]> => {
  const untilMs = performance.now() + waitMaxMs
  for (;;) {
    const late = (await liveHolders(pool)).filter(
      (holder) => holder.holder !== secretRing.holder && !holds(holder),
    )
    if (late.length === 0 || performance.now() >= untilMs)
      return late.map(({ host, pid }) => `${host} process ${pid}`)
    await sleep(pauseMs)
  }
}

const untilAllHave = async (rotating: Rotating, keyId: string): Promise<void> => {
  const late = await lateHolders(rotating, ({ keyIds }) => keyIds.includes(keyId))
  const older = await withoutHolder(rotating)
  if (late.length + older.length === 0) return
  throw new CommandRefused(
    `these do not have the key ${keyId}, and could not check what others make under it: ${[...late, ...older].join(', ')}. ` +
      'Restart each with SECRET_KEY set to it and the former key in SECRET_KEYS_OLD, then run this again. Nothing was changed',
  )
}

/** Processes that serve calls and say nothing about keys: of an earlier release. */
const withoutHolder = async ({ foundation: { pool } }: Rotating): Promise<string[]> => {
  const { rows } = await pool.query<{ host: string; pid: number }>(
    `select host, pid from processes p
      where heartbeat_at > now() - interval '5 s'
        and not exists (select from secret_key_holders h where h.host = p.host and h.pid = p.pid)
      order by host, pid limit 20`,
  )
  return rows.map(({ host, pid }) => `${host} process ${pid} (of an earlier release)`)
}

const untilAllUse = (rotating: Rotating, keyId: string): Promise<string[]> =>
  lateHolders(rotating, ({ currentKeyId }) => currentKeyId === keyId)

/** One statement: of two commands at once the second changes nothing. */
const putIntoUse = async ({ foundation }: Rotating, next: RingKey): Promise<void> => {
  const { pool, eventLog, secretRing } = foundation
  const place = await endOf(eventLog)
  const client = await pool.connect()
  try {
    await client.query('begin')
    await client.query('lock table secret_keys in exclusive mode')
    const known = await knownSecretKeys(client)
    if (!known.some(({ id }) => id === next.id)) {
      await client.query(`update secret_keys set state = 'needed' where state = 'current'`)
      // No key fits it any more: a process of an earlier release, which knows one key, does not start.
      await client.query(`update secret_key_check set hash = 'rotated'`)
      await client.query(
        `insert into secret_keys (number, key_id, hash, state, in_use_from, position_from, event_from, recorded, renewed)
         values ($1, $2, $3, 'current', now(), $4, $5, false, false)`,
        [
          Math.max(...known.map(({ number }) => number)) + 1,
          next.id,
          next.check,
          place?.position.toString(),
          place?.eventId,
        ],
      )
    }
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  } finally {
    client.release()
  }
  await secretRing.look()
}

/** Records that the key in use is, unless that was done. */
const recordRotated = async (rotating: Rotating): Promise<void> => {
  const { foundation, uses } = rotating
  const known = await knownSecretKeys(foundation.pool)
  const current = known.find(({ state }) => state === 'current')
  const former = known.findLast(({ number }) => current !== undefined && number < current.number)
  if (current === undefined || former === undefined || current.recorded) return
  const under = await underKeys(uses(known), known, [former])
  const data = {
    secret_key: current.id,
    former: former.id,
    under_former: recorded(under.get(former.id) ?? []),
  }
  await recordOnce(rotating, { type: 'SecretKeyRotated', data }, `secret-key/${current.id}`)
  await foundation.pool.query('update secret_keys set recorded = true where key_id = $1', [current.id])
}

/** No process makes anything under a former key any more: what is under it ends here. */
const settle = async ({ pool, eventLog }: Foundation): Promise<void> => {
  const place = await endOf(eventLog)
  await pool.query(
    `update secret_keys set position_until = $1, event_until = $2 where state = 'needed' and position_until is null`,
    [place?.position.toString(), place?.eventId],
  )
}

/** The last event of the log; null where there is none. */
const endOf = async (eventLog: Foundation['eventLog']): Promise<PlaceOfKey | null> => {
  const last = await eventLog.at(await eventLog.head())
  return last === null ? null : { position: last.position, eventId: last.id }
}

/** Far more than any installation has. */
const portionsMax = 1_000_000

const renewAll = async ({
  foundation,
  uses,
  progress,
}: Rotating): Promise<{ use: string; count: number }[]> => {
  const done: { use: string; count: number }[] = []
  for (const { name, renew } of uses(await knownSecretKeys(foundation.pool))) {
    if (renew === undefined) continue
    let count = 0
    let after: string | null = ''
    for (let portion = 0; after !== null; portion++) {
      if (portion >= portionsMax) throw new Error(`${name}: there is no end of it`)
      const { renewed, next }: Awaited<ReturnType<typeof renew>> = await renew(after)
      count += renewed
      after = next
      progress(`${name}: ${count} made anew`)
    }
    done.push({ use: name, count })
  }
  return done
}

/** Lets former keys leave on which nothing depends, where every process has turned to the one in use; keeps what the others are for. */
const letLeave = async (
  rotating: Rotating,
  late: readonly string[],
): Promise<Pick<Rotation, 'left' | 'kept'>> => {
  const { foundation, uses } = rotating
  const { pool, secretRing } = foundation
  const known = await knownSecretKeys(pool)
  const former = known.filter(({ state }) => state === 'needed')
  const under = await underKeys(uses(known), known, former)
  const left: string[] = []
  const kept: { secretKey: string; under: Under }[] = []
  for (const { id, until } of former) {
    const still = under.get(id) ?? []
    const leaves = still.length === 0 && late.length === 0 && until !== null
    // One that was given up meanwhile stays so.
    await pool.query(`update secret_keys set state = $2, under = $3 where key_id = $1 and state = 'needed'`, [
      ...[id, leaves ? 'left' : 'needed', JSON.stringify(still.map(underText))],
    ])
    if (leaves) left.push(id)
    else kept.push({ secretKey: id, under: still })
  }
  if (left.length > 0) await takeOutOfKeyFile(rotating, left)
  await secretRing.look()
  return { left, kept }
}
