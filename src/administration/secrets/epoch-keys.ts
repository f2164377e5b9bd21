import type { Foundation } from '../../foundation/foundation.ts'
import { destroyedByMs, epochMs, epochOf, isRetired } from '../../guard/secrets/epochs.ts'

/** The keys that seal all data about people. */

type Keys = Pick<Foundation, 'epochKeys'>

type ListedEpochKey = {
  readonly id: string
  /** `in use`, `ending` (nothing new is sealed under the key), or the state of the key's file. */
  readonly state: string
  readonly fromMs: number
  readonly untilMs: number
  /** The date by which the key's last copy is deleted. */
  readonly destroyedByMs: number
}

export const listEpochKeys = async ({ epochKeys }: Keys): Promise<ListedEpochKey[]> => {
  const current = epochOf(Date.now())
  return (await epochKeys.list()).map(({ id, epoch, state }) => ({
    id,
    state: state === 'present' ? (isRetired(epoch, current) ? 'ending' : 'in use') : state,
    fromMs: epoch * epochMs,
    untilMs: (epoch + 1) * epochMs,
    destroyedByMs: destroyedByMs(epoch),
  }))
}

/** Removes everything that was sealed with keys that are lost permanently. `dropped` is the number of values removed from the stores. */
export const abandonLostKeys = async (
  { epochKeys }: Keys,
  stores: readonly { drop(keyId: string): Promise<number> }[],
): Promise<{ abandoned: string[]; dropped: number }> => {
  const lost = (await epochKeys.list()).filter(({ state }) => state === 'lost')
  let dropped = 0
  for (const key of lost) {
    for (const store of stores) dropped += await store.drop(key.id)
    await epochKeys.settleDestroyed(key)
  }
  return { abandoned: lost.map(({ id }) => id), dropped }
}
