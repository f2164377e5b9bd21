import { InputFault } from '../administration/input.ts'
import {
  planRotation,
  type Rotation,
  type RotationStep,
  rotateSecrets,
  secretKeyStatus,
} from '../administration/secrets/rotate-secrets.ts'
import type { Command, Given } from './command.ts'
import { table } from './table.ts'

const status: Command = {
  name: 'secrets status',
  action: 'system.read',
  summary: 'the SECRET_KEYs that open the installation key',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation, config }) => {
    const keys = await secretKeyStatus({ foundation: await foundation(), config })
    const shown = keys.map(({ id, state, given }) => ({ secret_key: id, state, given }))
    return { json: { keys: shown }, lines: table(shown) }
  },
}

const stepOf = (given: Given): RotationStep => {
  const [finish, cancel] = [given.flag('finish'), given.flag('cancel')]
  if (finish && cancel) throw new InputFault('finish', 'give --finish or --cancel, not both')
  if (finish) return 'finish'
  return cancel ? 'cancel' : 'add'
}

const named = (id: string | null | undefined): string => id ?? 'a new key, made in DATA_DIR'

const says = (step: RotationStep, { before, after }: Rotation): string[] => {
  if (before.length === after.length)
    return [`The installation key is wrapped by ${after.map(named).join(' and ')} already.`]
  return step === 'add'
    ? [
        `Wrap the installation key by ${named(after.at(-1))} too. Processes start with it or with ${before.join()}.`,
        'Then restart every process with SECRET_KEY set to the new key, and run "secrets rotate --finish".',
      ]
    : [
        `Keep only the slot of ${after.map(named).join()}. A process with another SECRET_KEY no longer starts; running processes continue.`,
      ]
}

const rotate: Command = {
  name: 'secrets rotate',
  action: 'installation.change',
  summary: 'wrap the installation key by SECRET_KEY_NEW too; --finish removes the old SECRET_KEY',
  parameters: [
    { name: 'finish', help: 'every process runs with the new SECRET_KEY: remove the old one', kind: 'flag' },
    { name: 'cancel', help: 'remove the new SECRET_KEY and keep the old one', kind: 'flag' },
  ],
  changes: {
    of: 'access',
    asks: 'always',
    left: 'The step is done or it is not: "secrets status" says which, and the same command completes it.',
    plan: async ({ foundation, config }, given) => {
      const step = stepOf(given)
      const plan = await planRotation({ foundation: await foundation(), config }, step)
      return { says: says(step, plan), json: plan, sections: [] }
    },
  },
  run: async ({ foundation, config }, given) => {
    const step = stepOf(given)
    const open = await foundation()
    const done = await rotateSecrets({ foundation: open, config, actor: open.operator.actor }, step)
    const lines = [`The installation key is wrapped by ${done.after.map(named).join(' and ')}.`]
    if (step === 'add' && done.after.length > 1)
      lines.push(
        'Restart every process with SECRET_KEY set to the new key, then run "secrets rotate --finish".',
      )
    if (step === 'finish')
      lines.push('Keep the old SECRET_KEY until the last backup from before the rotation is deleted.')
    return { json: done, lines }
  },
}

export const secretsCommands: readonly Command[] = [status, rotate]
