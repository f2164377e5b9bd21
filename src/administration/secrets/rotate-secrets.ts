import { unlink } from 'node:fs/promises'
import type { Config } from '../../config.ts'
import { AppendConflict } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { appendSlots, slotsMax, standingKeyIn } from '../../foundation/installation-key.ts'
import { keyMadeIn, knownSecretKeysOf, secretKeyFiles, useNextKeyFile } from '../../foundation/secret-key.ts'
import { type KeySlot, openSlots, type SecretKey, secretKeyOf } from '../../guard/secrets/installation-key.ts'
import { CommandRefused } from '../../ledger/command.ts'

/**
 * Changes SECRET_KEY in steps, so that processes can start at any time: the installation key is also wrapped with the new key,
 * every process is restarted with the new key, and then the previous slot is removed. Each step is one append at the revision that
 * was read, so a concurrent rotation is refused. After an interruption, the same command can be repeated.
 */

type Rotating = {
  readonly foundation: Pick<Foundation, 'eventLog'>
  readonly config: Config
  readonly actor: string
}

/** `finish`: remove the previous slot. `cancel`: remove the new slot. */
export type RotationStep = 'add' | 'finish' | 'cancel'

export type Rotation = {
  /** The ids of the SECRET_KEYs of the slots, newest last. In `after`, null means a key that does not exist yet. */
  readonly before: readonly string[]
  readonly after: readonly (string | null)[]
}

type SecretKeyStatus = {
  readonly id: string
  readonly state: 'current' | 'former'
  /** Whether the environment of this command contains the key. */
  readonly given: boolean
}

export const secretKeyStatus = async ({
  foundation,
  config,
}: Pick<Rotating, 'foundation' | 'config'>): Promise<readonly SecretKeyStatus[]> => {
  const given = (await knownSecretKeysOf(config)) ?? []
  const slots = idsOf((await standingKeyIn(foundation.eventLog)).slots)
  return slots.toReversed().map((id, n) => ({
    id,
    state: n === 0 ? 'current' : 'former',
    given: given.some((key) => key.id === id),
  }))
}

const idsOf = (slots: readonly KeySlot[]): string[] => slots.map(({ secret_key }) => secret_key)

/** The effect that a step would have. Writes nothing. Throws `CommandRefused` if the step would be refused. */
export const planRotation = async (
  { foundation, config }: Pick<Rotating, 'foundation' | 'config'>,
  step: RotationStep,
): Promise<Rotation> => {
  const { slots } = await standingKeyIn(foundation.eventLog)
  const before = idsOf(slots)
  if (step === 'add') {
    const next = await nextKey(config)
    if (next === null) refuseUnderWay(before)
    return { before, after: next === null ? [...before, null] : idsAfter(before, next) }
  }
  return { before, after: idsOf(await keptBy(step, { slots, config })) }
}

/** Makes a step, or completes one that was interrupted. `changed` is false if there was nothing to do. */
export const rotateSecrets = async (
  rotating: Rotating,
  step: RotationStep,
): Promise<Rotation & { readonly changed: boolean }> => {
  const { foundation, config, actor } = rotating
  const { slots, revision, key_check } = await standingKeyIn(foundation.eventLog)
  const before = idsOf(slots)
  const wanted = step === 'add' ? await added(config, slots) : await keptBy(step, { slots, config })
  const after = idsOf(wanted)
  const differs = after.join() !== before.join()
  if (differs)
    await appendSlots(foundation.eventLog, { expected: revision, actor, key_check, slots: wanted }).catch(
      (error: unknown) => {
        if (!(error instanceof AppendConflict)) throw error
        throw new CommandRefused(
          'another rotation changed the keys at the same moment: see "secrets status". This command changed nothing',
        )
      },
    )
  const moved = await settleFiles(config, step)
  return { before, after, changed: differs || moved }
}

/** SECRET_KEY_NEW, or the key that an earlier call created in DATA_DIR; null if a new key will be created there. */
const nextKey = async (config: Config): Promise<SecretKey | null> => {
  if (config.SECRET_KEY_NEW !== undefined) return secretKeyOf(config.SECRET_KEY_NEW)
  if (secretKeyFiles(config) === null)
    throw new CommandRefused(
      'SECRET_KEY_NEW is not set: set it to the new key, at least 32 characters. Nothing was changed',
    )
  const [, next] = (await knownSecretKeysOf(config)) ?? []
  return next ?? null
}

const idsAfter = (before: readonly string[], next: SecretKey): string[] => {
  if (before.includes(next.id)) return [...before]
  refuseUnderWay(before)
  return [...before, next.id]
}

const refuseUnderWay = (before: readonly string[]): void => {
  if (before.length >= slotsMax)
    throw new CommandRefused(
      `a rotation to ${before.at(-1)} is in progress: complete it with --finish, or cancel it with --cancel. Nothing was changed`,
    )
}

const added = async (config: Config, slots: readonly KeySlot[]): Promise<readonly KeySlot[]> => {
  const files = secretKeyFiles(config)
  const given = await nextKey(config)
  if (given === null) refuseUnderWay(idsOf(slots))
  const next = given ?? (files === null ? null : secretKeyOf(await keyMadeIn(files.next)))
  if (next === null) throw new CommandRefused('there is no new SECRET_KEY')
  if (idsAfter(idsOf(slots), next).length === slots.length) return slots
  const open = openSlots(slots, (await knownSecretKeysOf(config)) ?? [])
  if (open === null)
    throw new CommandRefused('SECRET_KEY does not open the installation key. Nothing was changed')
  return [...slots, open.wrapFor(next)]
}

/** The slot that remains. It is opened before the other slot is removed, to prove that this host has its key. */
const keptBy = async (
  step: 'finish' | 'cancel',
  { slots, config }: { slots: readonly KeySlot[]; config: Config },
): Promise<readonly KeySlot[]> => {
  const kept = slots.slice(step === 'finish' ? -1 : 0).slice(0, 1)
  const [current, next] = (await knownSecretKeysOf(config)) ?? []
  // If the keys are in environment variables, only SECRET_KEY itself counts, because every process is started with it.
  const given = [current, secretKeyFiles(config) === null ? undefined : next]
  if (
    openSlots(
      kept,
      given.filter((key) => key !== undefined),
    ) === null
  )
    throw new CommandRefused(
      `SECRET_KEY is not ${kept[0]?.secret_key}, which would be the only key left: set SECRET_KEY to that key for every process and here, restart the processes, and run this command again. Nothing was changed`,
    )
  return kept
}

/** Returns whether there was a file of a new key. */
const settleFiles = async (config: Config, step: RotationStep): Promise<boolean> => {
  const files = secretKeyFiles(config)
  if (files === null || step === 'add') return false
  const [, next] = (await knownSecretKeysOf(config)) ?? []
  if (next === undefined || config.SECRET_KEY_NEW !== undefined) return false
  if (step === 'finish') await useNextKeyFile(files)
  else await unlink(files.next)
  return true
}
