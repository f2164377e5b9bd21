import { type GivingUp, giveUpSecretKey, planGiveUp } from '../administration/give-up-secret.ts'
import {
  planRotation,
  type Rotating,
  type Rotation,
  rotateSecrets,
} from '../administration/rotate-secrets.ts'
import { type SecretKeyStatus, secretKeyStatus, underKeys, underText } from '../administration/secret-keys.ts'
import { ownKeyedUses } from '../administration/secret-uses.ts'
import type { Plan } from '../call/command.ts'
import { capabilities } from '../capabilities/index.ts'
import { secretKeyFile } from '../foundation/secret-key.ts'
import { knownSecretKeys } from '../foundation/secret-ring.ts'
import type { Command, CommandContext, OperatedFoundation } from './command.ts'
import { table } from './table.ts'

const usesOf =
  (foundation: OperatedFoundation): Rotating['uses'] =>
  (known) => [
    ...ownKeyedUses(foundation, known),
    ...capabilities.flatMap(({ keyed }) => keyed?.(foundation) ?? []),
  ]

const fates = {
  renewed: '"secrets rotate" makes them anew',
  when_used: 'each is made anew when it is used next',
  ends: 'they end by themselves within a month',
  kept: 'they cannot be made anew: the key stays',
} as const

const status: Command = {
  name: 'secrets status',
  summary: 'the SECRET_KEYs this installation has, which is in use, and what still depends on the others',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => {
    const open = await foundation()
    const { keys, processes } = await secretKeyStatus(open, usesOf(open))
    const shown = keys.map(keyJson)
    const running = processes.map(({ host, pid, keyIds, currentKeyId }) => ({
      ...{ host, pid },
      secret_keys: keyIds,
      in_use: currentKeyId,
    }))
    return {
      json: { keys: shown, processes: running },
      lines: [
        ...table(shown.map(({ under: _, ...row }) => row)),
        ...keys.flatMap(({ id, under }) =>
          under.map((one) => `${id}: ${underText(one)}; ${fates[one.fate]}`),
        ),
        '',
        ...(running.length === 0 ? ['no process of the service runs'] : table(running)),
      ],
    }
  },
}

const keyJson = ({ id, state, inUseFrom, given, under }: SecretKeyStatus) => ({
  secret_key: id,
  state,
  in_use_from: inUseFrom?.toISOString() ?? null,
  given,
  under: under.map(({ use, count, more, fate }) => ({ use, count, and_more: more, fate })),
})

const rotatingOf = async ({ foundation, config, progress }: CommandContext): Promise<Rotating> => {
  const open = await foundation()
  return { foundation: open, config, uses: usesOf(open), actor: open.operator.actor, progress }
}

const rotate: Command = {
  name: 'secrets rotate',
  summary:
    'put the new SECRET_KEY into use and make anew under it what can be; takes up one that was interrupted',
  parameters: [],
  changes: {
    of: 'access',
    asks: 'always',
    left: 'The new key may be in use, and some things may still be under the former one, which stays needed: "secrets status" says so, and the same command goes on.',
    plan: async (context) => planOf(await rotatingOf(context)),
  },
  run: async (context) => {
    const rotating = await rotatingOf(context)
    const done = await rotateSecrets(rotating, await planRotation(rotating))
    return {
      json: {
        secret_key: done.secretKey,
        former: done.former,
        renewed: done.renewed,
        left: done.left,
        kept: done.kept.map(({ secretKey, under }) => ({
          secret_key: secretKey,
          under: under.map(underText),
        })),
        late: done.late,
      },
      lines: linesOf(done, secretKeyFile(context.config)),
      failed: done.late.length > 0,
    }
  },
}

/** What would be done, and what is under the keys that would not be in use any more. */
const planOf = async (rotating: Rotating): Promise<Plan> => {
  const { inUse, next } = await planRotation(rotating)
  const known = await knownSecretKeys(rotating.foundation.pool)
  const former = known.filter(
    ({ id, state }) => state === 'needed' || (state === 'current' && next !== null && id === inUse),
  )
  const counted = await underKeys(rotating.uses(known), known, former)
  const all = [...counted].flatMap(([id, under]) => under.map((one) => ({ secret_key: id, ...one })))
  const id = next === null || next === 'fresh' ? next : next.id
  return {
    says: [
      next === null
        ? `Make anew under ${inUse}, which is in use and stays so, what is left under former keys. SECRET_KEY is set to that one: set it to a new one first to put another into use.`
        : `Put ${id === 'fresh' ? 'a new key' : id} into use in place of ${inUse}, for good, and make anew under it what can be.`,
      ...all.map((one) => `${one.secret_key}: ${underText(one)}; ${fates[one.fate]}.`),
    ],
    json: {
      in_use: inUse,
      next: id,
      under: all.map(({ secret_key, use, count, more, fate }) => ({
        ...{ secret_key, use, count },
        ...{ and_more: more, fate },
      })),
    },
    saysAll: true,
  }
}

const linesOf = (
  { secretKey, former, renewed, left, kept, late }: Rotation,
  file: string | null,
): string[] => [
  former === null
    ? `${secretKey} is in use, as before.`
    : `${secretKey} is in use; until now it was ${former}.`,
  ...renewed.map(({ use, count }) => `${use}: ${count} made anew`),
  ...left.map((id) => leftText(id, file)),
  ...kept.map(({ secretKey: id, under }) =>
    under.length === 0
      ? `${id} stays until every process has turned to ${secretKey}.`
      : `${id} stays, for ${under.map(underText).join(', ')}.`,
  ),
  ...(late.length === 0
    ? []
    : [`These still work under the former key: ${late.join(', ')}. See what keeps them and run this again.`]),
]

const leftText = (id: string, file: string | null): string =>
  file === null
    ? `${id} can leave: take it out of SECRET_KEYS_OLD at the next restart and destroy every copy of it.`
    : `${id} has left: it is no longer in ${file}. Destroy every other copy of it.`

/** What no count tells, of any former key. */
const alwaysLost = [
  'Backups that were made while it was in use are restored only with it: keep a copy of the key as long as such a backup.',
  'If it is the eldest, pixel hits of the last day that are sent again are counted again, and people sign in to the dashboard again.',
]

const lossesText = ({ lost }: GivingUp): string[] =>
  lost.map(({ use, count, loses }) => `${underText({ use, count, more: false })}: ${loses}.`)

const giveUp: Command = {
  name: 'secrets give-up',
  summary: 'give up a former SECRET_KEY; says what is lost, and refuses where that would bring someone back',
  parameters: [
    { name: 'id', help: 'the 12 hexadecimal digits that "secrets status" calls the key', required: true },
  ],
  changes: {
    of: 'access',
    asks: 'always',
    left: 'The key may be given up, and still be in the file of DATA_DIR: the same command goes on.',
    plan: async (context, given) => {
      const plan = await planGiveUp(await rotatingOf(context), given.required('id'))
      return {
        says: [`Give up ${plan.secretKey}, for good.`, ...lossesText(plan), ...alwaysLost],
        json: givingUpJson(plan),
        saysAll: true,
      }
    },
  },
  run: async (context, given) => {
    const done = await giveUpSecretKey(await rotatingOf(context), given.required('id'))
    return {
      json: givingUpJson(done),
      lines: [...lossesText(done), leftText(done.secretKey, secretKeyFile(context.config))],
    }
  },
}

const givingUpJson = ({ secretKey, lost }: GivingUp) => ({ secret_key: secretKey, lost })

export const secretsCommands: readonly Command[] = [status, rotate, giveUp]
