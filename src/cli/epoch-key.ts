import { abandonLostKeys, listEpochKeys } from '../administration/secrets/epoch-keys.ts'
import { capabilities } from '../capabilities/index.ts'
import { keyDirOf } from '../foundation/data-dir.ts'
import type { Command } from './command.ts'
import { table } from './table.ts'

const instant = (ms: number): string => new Date(ms).toISOString()

const list: Command = {
  name: 'epoch-key list',
  action: 'system.read',
  summary: 'list the keys that seal personal data, and the date by which each is destroyed',
  parameters: [],
  changes: 'nothing',
  run: async ({ config, foundation }) => {
    const keys = (await listEpochKeys(await foundation())).map((key) => ({
      key: key.id,
      state: key.state,
      from: instant(key.fromMs),
      until: instant(key.untilMs),
      destroyed_by: instant(key.destroyedByMs),
    }))
    return {
      json: keys,
      lines: keys.length === 0 ? ['no key has been created yet'] : [...table(keys), '', keyDirOf(config)],
      failed: keys.some(({ state }) => state === 'lost'),
    }
  },
}

const abandon: Command = {
  name: 'epoch-key abandon',
  action: 'log.change',
  summary:
    'abandon data whose keys are permanently lost: people are removed from the data set, and profiles are fetched again',
  parameters: [],
  changes: {
    of: 'people',
    asks: 'always',
    left: 'Some keys may have been abandoned: "epoch-key list" shows the others. Run the same command again to continue.',
    plan: async ({ foundation }) => {
      const lost = (await listEpochKeys(await foundation())).filter(({ state }) => state === 'lost')
      return lost.length === 0
        ? { says: ['Nothing: no key is lost.'], asks: 'never' }
        : { says: [`Permanently abandon the data sealed under ${lost.map(({ id }) => id).join(', ')}.`] }
    },
  },
  run: async ({ config, foundation }) => {
    const open = await foundation()
    const stores = capabilities.flatMap(({ sealed }) => sealed?.(open) ?? [])
    const { abandoned, dropped } = await abandonLostKeys(open, stores)
    return {
      json: { abandoned, dropped_from_data_set: dropped },
      lines:
        abandoned.length === 0
          ? [`No key is lost: ${keyDirOf(config)} contains all keys that are needed.`]
          : [
              `Abandoned: ${abandoned.join(', ')}.`,
              `${dropped} people in the data set were sealed under these keys and must be imported again.`,
            ],
    }
  },
}

export const epochKeyCommands: readonly Command[] = [list, abandon]
