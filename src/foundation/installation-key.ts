import { randomUUID } from 'node:crypto'
import { ConfigError } from '../config.ts'
import { appendChained } from '../event-log/append-chained.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog, type ExpectedRevision, StreamMissing } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import type { InstallationKeyWrapped } from '../events/operator.ts'
import { installationStream, priceBookStream } from '../events/streams.ts'
import { checkOf, type KeySlot, newKeySlot, openSlots, type SecretKey } from '../guard/installation-key.ts'
import { type InstallationKey, sameHmac } from '../guard/secrets.ts'

/**
 * The installation key in the event log. The newest event of its stream holds the slots, so the log alone brings it back, and the
 * expected revision keeps two rotations apart: the second one is refused and changes nothing.
 */

type Log = Pick<EventLog, 'append' | 'read'>

type WrappedKey = InstallationKeyWrapped & { readonly revision: number }

const pageMax = 10

/** Null: the log has no installation key. */
export const wrappedKeyIn = async (eventLog: Pick<EventLog, 'read'>): Promise<WrappedKey | null> => {
  const page = await readOr(eventLog, installationStream, { direction: 'backwards', max: pageMax })
  for (const recorded of page) {
    const { type, data } = decodeEvent(recorded)
    if (type === 'InstallationKeyWrapped') return { ...data, revision: recorded.revision }
  }
  return null
}

/** The same of a log that is in use. */
export const standingKeyIn = async (eventLog: Pick<EventLog, 'read'>): Promise<WrappedKey> => {
  const wrapped = await wrappedKeyIn(eventLog)
  if (wrapped === null) throw new Error('the event log has no installation key')
  return wrapped
}

const readOr = async (
  eventLog: Pick<EventLog, 'read'>,
  ...asked: Parameters<EventLog['read']>
): ReturnType<EventLog['read']> => {
  try {
    return await eventLog.read(...asked)
  } catch (error) {
    if (error instanceof StreamMissing) return []
    throw error
  }
}

/** Throws `AppendConflict` where another process changed the slots. */
export const appendSlots = async (
  eventLog: Log,
  {
    expected,
    actor,
    key_check,
    slots,
  }: {
    readonly expected: ExpectedRevision
    readonly actor: string
    readonly key_check: string
    readonly slots: readonly KeySlot[]
  },
): Promise<void> => {
  await appendChained(eventLog, installationStream, expected, [
    encodeEvent(
      { type: 'InstallationKeyWrapped', data: { key_check, slots: [...slots] } },
      {
        id: eventIdOf(installationStream, randomUUID(), 0),
        actor,
        effectiveAt: new Date().toISOString(),
      },
    ),
  ])
}

/**
 * Unwraps the installation key of this event log. An empty log gets one; of processes that start at once, one makes it. `restored` are
 * slots of a backup of the same installation: then the key is wrapped again under the SECRET_KEYs given. Throws `ConfigError`.
 */
export const openInstallationKey = async (
  eventLog: Log,
  { secretKeys, restored }: { secretKeys: readonly SecretKey[]; restored?: readonly KeySlot[] | undefined },
): Promise<InstallationKey> => {
  const known = await wrappedOrMade(eventLog, secretKeys)
  const open = openSlots(known.slots, secretKeys) ?? openSlots(restored ?? [], secretKeys)
  if (open === null || !sameHmac(checkOf(open.key), known.key_check))
    throw new ConfigError(`SECRET_KEY: ${wrongKeyText(known)}; nothing was changed.`)
  const unwrapped = secretKeys.filter(({ id }) => known.slots.every(({ secret_key }) => secret_key !== id))
  if (restored !== undefined && unwrapped.length > 0)
    await appendSlots(eventLog, {
      ...{ expected: known.revision, actor: 'system', key_check: known.key_check },
      slots: [...known.slots, ...unwrapped.map(open.wrapFor)].slice(-slotsMax),
    })
  return open.key
}

/** One for the SECRET_KEY in use, one for the next. */
export const slotsMax = 2

export const wrongKeyText = ({ slots }: WrappedKey): string =>
  `this installation was set up with another one (${slots.map(({ secret_key }) => secret_key).join(' or ')}), and with this one no issued key would work. Start with that one`

const wrappedOrMade = async (eventLog: Log, secretKeys: readonly SecretKey[]): Promise<WrappedKey> => {
  // First: the price book comes after the key in every log, so a log with one and without a key is not ours to continue.
  const isUsed = (await readOr(eventLog, priceBookStream, { max: 1 })).length > 0
  const known = await wrappedKeyIn(eventLog)
  if (known !== null) return known
  if (isUsed)
    throw new ConfigError(
      'EVENT_LOG_URL: this event log was written by a release before 1.0, which this release cannot continue; nothing was changed.',
    )
  const [secretKey] = secretKeys
  if (secretKey === undefined) throw new ConfigError('SECRET_KEY: there is none')
  const slot = newKeySlot(secretKey)
  const made = openSlots([slot], [secretKey])
  if (made === null) throw new Error('a new slot does not open')
  const wrapped = { key_check: checkOf(made.key), slots: [slot] }
  try {
    await appendSlots(eventLog, { expected: 'none', actor: 'system', ...wrapped })
    return { ...wrapped, revision: 0 }
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
    const first = await wrappedKeyIn(eventLog)
    if (first === null) throw error
    return first
  }
}
