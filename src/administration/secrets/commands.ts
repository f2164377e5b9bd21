import { z } from 'zod'
import type { Config } from '../../config.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { secretKeyFiles } from '../../foundation/secret-key.ts'
import { onHost } from '../declare.ts'
import { flag } from '../fields.ts'
import { InputFault } from '../input.ts'
import { abandonLostKeys, listEpochKeys } from './epoch-keys.ts'
import {
  planRotation,
  type Rotation,
  type RotationStep,
  rotateSecrets,
  secretKeyStatus,
} from './rotate-secrets.ts'

const status = onHost({
  name: 'secrets status',
  action: 'system.read',
  summary: 'list the SECRET_KEYs that open the installation key',
  input: z.object({}),
  changes: 'nothing',
  run: async ({ open, config }) => {
    const keys = await secretKeyStatus({ ...(await open()), config })
    const shown = keys.map(({ id, state, given }) => ({ secret_key: id, state, given }))
    return { json: { keys: shown } }
  },
})

const stepOf = ({ finish, cancel }: { readonly finish: boolean; readonly cancel: boolean }): RotationStep => {
  if (finish && cancel) throw new InputFault('finish', 'give --finish or --cancel, not both')
  if (finish) return 'finish'
  return cancel ? 'cancel' : 'add'
}

const named = (id: string | null | undefined): string => id ?? 'a new key, created in DATA_DIR'

/** With the embedded default, the key is in a file, so no variable has to be set. */
const restart = (config: Config): string =>
  secretKeyFiles(config) === null
    ? 'restart every process with SECRET_KEY set to the new key, '
    : 'restart the service, '

const oldKey = (config: Config): string => {
  const files = secretKeyFiles(config)
  return files === null
    ? 'Keep the old SECRET_KEY until all backups from before the rotation are deleted.'
    : `The new key replaces ${files.current}: keep a copy of the old key until all backups from before the rotation are deleted.`
}

const rotationSays = (step: RotationStep, { before, after }: Rotation, config: Config): string[] => {
  if (before.length === after.length)
    return [`The installation key is already wrapped with ${after.map(named).join(' and ')}.`]
  return step === 'add'
    ? [
        `Wrap the installation key with ${named(after.at(-1))} as well. Processes can then start with either that key or ${before.join()}.`,
        `Then ${restart(config)}and run "secrets rotate --finish".`,
      ]
    : [
        `Keep the installation key wrapped only with ${after.map(named).join()}. Processes with another SECRET_KEY can then no longer start, but running processes continue.`,
        ...(step === 'finish' ? [oldKey(config)] : []),
      ]
}

const rotate = onHost({
  name: 'secrets rotate',
  action: 'installation.change',
  summary: 'wrap the installation key with SECRET_KEY_NEW as well; --finish removes the old SECRET_KEY',
  input: z.object({
    finish: flag({
      label: 'Finish',
      help: 'remove the old SECRET_KEY, once every process runs with the new one',
    }),
    cancel: flag({ label: 'Cancel', help: 'remove the new SECRET_KEY and keep the old one' }),
  }),
  changes: { of: 'access', asks: 'always' },
  plan: async ({ open, config }, input) => {
    const step = stepOf(input)
    const plan = await planRotation({ ...(await open()), config }, step)
    return {
      says: rotationSays(step, plan, config),
      json: plan,
      sections: [],
      // No question is asked if the step was already made, because the command then only completes an interrupted step.
      ...(plan.before.length === plan.after.length && { asks: 'never' }),
    }
  },
  run: async ({ open, config }, input) => {
    const step = stepOf(input)
    const { foundation, operator } = await open()
    const { changed, ...done } = await rotateSecrets({ foundation, config, actor: operator.actor }, step)
    if (!changed && step !== 'add')
      return {
        json: done,
        lines: [
          `No rotation is in progress, so nothing was changed. The installation key is wrapped with ${done.after.map(named).join(' and ')}.`,
        ],
      }
    const lines = [`The installation key is now wrapped with ${done.after.map(named).join(' and ')}.`]
    if (step === 'add' && done.after.length > 1)
      lines.push(`Now ${restart(config)}then run "secrets rotate --finish".`)
    if (step === 'finish') lines.push(oldKey(config))
    return { json: done, lines }
  },
})

const listKeys = onHost({
  name: 'epoch-key list',
  action: 'system.read',
  summary: 'list the keys that seal personal data, and the date by which each is destroyed',
  input: z.object({}),
  changes: 'nothing',
  run: async ({ open, config }) => {
    const { foundation } = await open()
    const keys = (await listEpochKeys(foundation)).map((key) => ({
      key: key.id,
      state: key.state,
      from: instant(key.fromMs),
      until: instant(key.untilMs),
      destroyed_by: instant(key.destroyedByMs),
    }))
    return {
      json: keys,
      sections: keys.length === 0 ? ['no key has been created yet'] : [keys, keyDirOf(config)],
      failed: keys.some(({ state }) => state === 'lost'),
    }
  },
})

const instant = (ms: number): string => new Date(ms).toISOString()

const abandonKeys = onHost({
  name: 'epoch-key abandon',
  action: 'log.change',
  summary:
    'abandon data whose keys are permanently lost: people are removed from the data set, and profiles are fetched again',
  input: z.object({}),
  changes: { of: 'people', asks: 'always' },
  plan: async ({ open }) => {
    const { foundation } = await open()
    const lost = (await listEpochKeys(foundation)).filter(({ state }) => state === 'lost')
    return lost.length === 0
      ? { says: ['Nothing: no key is lost.'], asks: 'never' }
      : `Permanently abandon the data sealed under ${lost.map(({ id }) => id).join(', ')}.`
  },
  run: async ({ open, config }) => {
    const { foundation, data } = await open()
    const { abandoned, dropped } = await abandonLostKeys(foundation, (await data()).sealedStores)
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
})

export const declarations = [status, rotate, listKeys, abandonKeys]
