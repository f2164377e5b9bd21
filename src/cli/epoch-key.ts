import { destroyedByMs, epochMs, epochOf, isRetired } from '../guard/epochs.ts'
import { sealedStoresOf } from '../open-profile.ts'
import { keyDirOf } from '../ops/data-dir.ts'
import type { Command } from './command.ts'
import { table } from './table.ts'

/** Commands about the keys that everything about people is sealed under. */

const instant = (ms: number): string => new Date(ms).toISOString()

const epochKeyList: Command = {
  name: 'epoch-key list',
  summary: 'the keys that data about people are sealed under, and by when each is destroyed',
  parameters: [],
  run: async ({ config, foundation }) => {
    const { epochKeys } = await foundation()
    const current = epochOf(Date.now())
    const keys = (await epochKeys.list()).map(({ id, epoch, state }) => ({
      key: id,
      state: state === 'present' ? (isRetired(epoch, current) ? 'ending' : 'in use') : state,
      from: instant(epoch * epochMs),
      until: instant((epoch + 1) * epochMs),
      destroyed_by: instant(destroyedByMs(epoch)),
    }))
    const lost = keys.some(({ state }) => state === 'lost')
    const lines = keys.length === 0 ? ['no key was needed yet'] : [...table(keys), '', keyDirOf(config)]
    return { json: keys, lines, failed: lost }
  },
}

const epochKeyAbandon: Command = {
  name: 'epoch-key abandon',
  summary:
    'give up what is sealed under keys that are lost for good: people of the data set are dropped, profiles are fetched again',
  parameters: [],
  run: async ({ config, foundation }) => {
    const open = await foundation()
    const lost = (await open.epochKeys.list()).filter(({ state }) => state === 'lost')
    let dropped = 0
    for (const key of lost) {
      for (const store of sealedStoresOf(open)) dropped += await store.drop(key.id)
      await open.epochKeys.settleDestroyed(key)
    }
    const ids = lost.map(({ id }) => id)
    return {
      json: { abandoned: ids, dropped_from_data_set: dropped },
      lines:
        ids.length === 0
          ? [`No key is lost: ${keyDirOf(config)} holds all that are needed.`]
          : [
              `Given up: ${ids.join(', ')}.`,
              `${dropped} people of the data set were under them and have to be imported again.`,
            ],
    }
  },
}

export const epochKeyCommands: readonly Command[] = [epochKeyList, epochKeyAbandon]
