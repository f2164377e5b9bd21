import type { Logger } from 'pino'
import type { SealedStore } from '../call/capability.ts'
import type { EpochKeys } from '../guard/epoch-keys.ts'
import { epochOf, isRetired, mayBeDestroyed } from '../guard/epochs.ts'

type Renewal = { readonly resealed: number; readonly destroyed: readonly string[] }

/** Passes over a store: each finds only what was written under the old key during the one before. */
const passesMax = 100
/** Further apart and one of the two clocks is wrong: no key is destroyed by it. */
const clockDifferenceMaxMs = 15 * 60_000

/**
 * Ends epochs: what is still needed under a key of the past is sealed anew under the current one, then the key is destroyed.
 * `databaseNowMs` is a second opinion on the time: a host whose clock is a month early must not destroy the keys in use. */
export const renewSeals = async ({
  keys,
  stores,
  clock,
  databaseNowMs,
  logger,
}: {
  keys: Pick<EpochKeys, 'current' | 'list' | 'settleDestroyed'>
  stores: readonly SealedStore[]
  clock: { now(): number }
  databaseNowMs: () => Promise<number>
  logger: Pick<Logger, 'warn'>
}): Promise<Renewal> => {
  const nowMs = clock.now()
  const differenceMs = Math.abs((await databaseNowMs()) - nowMs)
  if (differenceMs > clockDifferenceMaxMs)
    throw new Error(
      `this host's clock and the database's differ by ${Math.round(differenceMs / 1_000)} s: no epoch key is destroyed before they agree`,
    )
  await keys.current()
  let resealed = 0
  const destroyed: string[] = []
  for (const key of await keys.list()) {
    if (key.state === 'destroyed') {
      for (const { name, drop } of stores) {
        const dropped = await drop(key.id)
        if (dropped > 0)
          logger.warn(
            { key: key.id, store: name, dropped },
            'epoch keys: what was under a destroyed key is gone',
          )
      }
      await keys.settleDestroyed(key)
      continue
    }
    if (key.state === 'lost' || !isRetired(key.epoch, epochOf(nowMs))) continue
    for (const store of stores) resealed += await resealAll(store, key.id)
    if (!mayBeDestroyed(key.epoch, nowMs)) continue
    await keys.settleDestroyed(key)
    destroyed.push(key.id)
  }
  return { resealed, destroyed }
}

const resealAll = async ({ name, reseal }: SealedStore, keyId: string): Promise<number> => {
  let all = 0
  for (let pass = 0; pass < passesMax; pass++) {
    const some = await reseal(keyId)
    all += some
    if (some === 0) return all
  }
  throw new Error(`${name}: something is sealed under ${keyId} again and again`)
}
