import { type KnownSecretKey, knownSecretKeys } from '../foundation/secret-ring.ts'
import type { DependingOn, FormerKey, KeyedUse } from '../guard/keyed-use.ts'
import { CommandRefused } from '../ledger/commit.ts'
import type { Rotating } from './rotate-secrets.ts'
import { recordOnce } from './secret-key-events.ts'
import { takeOutOfKeyFile } from './secret-key-file.ts'
import { formerKeyOf, underText } from './secret-keys.ts'

/**
 * Gives up a former SECRET_KEY although facts of the event log are still compared under it. What must not be lost prevents it:
 * suppressions and events about people, for those who were erased could come back; what can be made anew, or ends, or is
 * ended by a command of its own; and requests that callers may still repeat.
 */

export type GivingUp = {
  readonly secretKey: string
  /** What is no longer possible without the key. */
  readonly lost: readonly { readonly use: string; readonly count: number; readonly loses: string }[]
}

const preventing = {
  renewed: 'run "secrets rotate" first, which makes them anew',
  when_used: 'each is made anew when it is used: revoke those that are never used',
  ends: 'they end by themselves within a month',
  kept: 'without the key these people are not recognized, and would come back',
} as const satisfies Record<KeyedUse['fate'], string>

/** Writes nothing. Throws `CommandRefused` where the key cannot be given up, and says by name and count what prevents it. */
export const planGiveUp = async (rotating: Rotating, id: string): Promise<GivingUp> => {
  const known = await knownSecretKeys(rotating.foundation.pool)
  const key = known.find((one) => one.id === id)
  refuseState(rotating, id, key)
  if (key === undefined || key.state !== 'needed') return { secretKey: id, lost: [] }
  rotating.progress('counting in the event log what depends on it')
  const depending: DependingOn[] = []
  for (const use of rotating.uses(known)) depending.push(...(await dependingOf(use, formerKeyOf(key, known))))
  const prevents = depending.flatMap((one) => ('prevents' in one ? [`${countOf(one)}: ${one.prevents}`] : []))
  if (prevents.length > 0)
    throw new CommandRefused(`${id} cannot be given up. Nothing was changed. ${prevents.join('. ')}`)
  return {
    secretKey: id,
    lost: depending.flatMap((one) =>
      'loses' in one ? [{ use: one.name, count: one.count, loses: one.loses }] : [],
    ),
  }
}

const countOf = ({ name, count }: DependingOn): string => underText({ use: name, count, more: false })

const refuseState = (
  { foundation: { secretRing } }: Rotating,
  id: string,
  key: KnownSecretKey | undefined,
): void => {
  const refuse = (why: string): never => {
    throw new CommandRefused(`${why}. Nothing was changed`)
  }
  if (key === undefined) refuse(`there was no SECRET_KEY ${id} in use here: "secrets status" lists them`)
  else if (key.state === 'current')
    refuse(`${id} is in use: put another into use first, with "secrets rotate"`)
  // One that is still here is taken out of the file: the command before may have been killed over it.
  else if (key.state === 'left') {
    if (!secretRing.ring.given().some((one) => one.id === id)) refuse(`${id} has left: nothing depends on it`)
  } else if (key.until === null)
    refuse(
      `some process may still make things under ${id}: "secrets rotate" waits for them, and names those that do not end`,
    )
}

const dependingOf = async (
  { name, fate, under, dependingOn }: KeyedUse,
  key: FormerKey,
): Promise<readonly DependingOn[]> => {
  if (dependingOn !== undefined) return dependingOn(key)
  const count = (await under([key])).get(key.id)?.count ?? 0
  return count === 0 ? [] : [{ name, count, prevents: preventing[fate] }]
}

/**
 * Looks again at what `planGiveUp` tells, and gives the key up. It may be interrupted anywhere: the same again goes on. Processes go on
 * checking under the key until they are started without it.
 */
export const giveUpSecretKey = async (rotating: Rotating, id: string): Promise<GivingUp> => {
  const { pool, secretRing } = rotating.foundation
  const plan = await planGiveUp(rotating, id)
  const lost = plan.lost.map(({ use, count }) => ({ use, count }))
  await recordOnce(
    rotating,
    { type: 'SecretKeyGivenUp', data: { secret_key: id, lost } },
    `secret-key-given-up/${id}`,
  )
  await pool.query(
    `update secret_keys set state = 'left', under = '[]' where key_id = $1 and state = 'needed'`,
    [id],
  )
  await takeOutOfKeyFile(rotating, [id])
  await secretRing.look()
  return plan
}
