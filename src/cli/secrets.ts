import { InputFault } from '../administration/input.ts'
import {
  planRotation,
  type Rotation,
  type RotationStep,
  rotateSecrets,
  secretKeyStatus,
} from '../administration/secrets/rotate-secrets.ts'
import type { Config } from '../config.ts'
import { secretKeyFiles } from '../foundation/secret-key.ts'
import type { Command, Given } from './command.ts'

const status: Command = {
  name: 'secrets status',
  action: 'system.read',
  summary: 'list the SECRET_KEYs that open the installation key',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation, config }) => {
    const keys = await secretKeyStatus({ foundation: await foundation(), config })
    const shown = keys.map(({ id, state, given }) => ({ secret_key: id, state, given }))
    return { json: { keys: shown } }
  },
}

const stepOf = (given: Given): RotationStep => {
  const [finish, cancel] = [given.flag('finish'), given.flag('cancel')]
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

const rotate: Command = {
  name: 'secrets rotate',
  action: 'installation.change',
  summary: 'wrap the installation key with SECRET_KEY_NEW as well; --finish removes the old SECRET_KEY',
  parameters: [
    {
      name: 'finish',
      help: 'remove the old SECRET_KEY, once every process runs with the new one',
      kind: 'flag',
    },
    { name: 'cancel', help: 'remove the new SECRET_KEY and keep the old one', kind: 'flag' },
  ],
  changes: {
    of: 'access',
    asks: 'always',
    left: 'The step may have been completed: "secrets status" shows whether it was. Run the same command again to complete it.',
    plan: async ({ foundation, config }, given) => {
      const step = stepOf(given)
      const plan = await planRotation({ foundation: await foundation(), config }, step)
      return {
        says: rotationSays(step, plan, config),
        json: plan,
        sections: [],
        // No question is asked if the step was already made, because the command then only completes an interrupted step.
        ...(plan.before.length === plan.after.length && { asks: 'never' as const }),
      }
    },
  },
  run: async ({ foundation, config }, given) => {
    const step = stepOf(given)
    const open = await foundation()
    const { changed, ...done } = await rotateSecrets(
      { foundation: open, config, actor: open.operator.actor },
      step,
    )
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
}

export const secretsCommands: readonly Command[] = [status, rotate]
