import { randomUUID } from 'node:crypto'
import { ConfigError } from '../config.ts'
import { appendChained } from '../event-log/append-chained.ts'
import { AppendConflict, type EventLog, type ExpectedRevision } from '../event-log/port.ts'
import { readIfAny } from '../event-log/read-stream.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import type { DomainEvent } from '../events/catalogue.ts'
import { type InstallationKeyWrapped, logFormat } from '../events/installation.ts'
import { installationStream, priceBookStream } from '../events/streams.ts'
import {
  checkOf,
  type KeySlot,
  newKeySlot,
  openSlots,
  type SecretKey,
} from '../guard/secrets/installation-key.ts'
import { type InstallationKey, sameHmac } from '../guard/secrets/secrets.ts'

/**
 * The installation key in the event log. The newest event of its stream contains the slots, so the key can be restored from the log alone. If two
 * rotations run at the same time, only one of them can append at the expected revision.
 */

type Log = Pick<EventLog, 'append' | 'read'>

/** `revision` is that of the last event in the stream. */
type WrappedKey = InstallationKeyWrapped & { readonly revision: number }

const pageMax = 100

/** Returns the wrapped installation key, or null if the log contains none. Events of other software in the stream are skipped. */
export const wrappedKeyIn = async (eventLog: Pick<EventLog, 'read'>): Promise<WrappedKey | null> => {
  const backwards = { direction: 'backwards', max: pageMax } as const
  let page = await readIfAny(eventLog, installationStream, backwards)
  const revision = page[0]?.revision ?? -1
  while (page.length > 0) {
    const newest = page.find(({ type }) => type === 'InstallationKeyWrapped')
    if (newest !== undefined) {
      const { type, data } = decodeEvent(newest)
      if (type === 'InstallationKeyWrapped') return { ...data, revision }
    }
    const from = (page.at(-1)?.revision ?? 0) - 1
    page = from < 0 ? [] : await readIfAny(eventLog, installationStream, { ...backwards, from })
  }
  return null
}

/** Like `wrappedKeyIn`, for a log that is in use, which always has a key. */
export const standingKeyIn = async (eventLog: Pick<EventLog, 'read'>): Promise<WrappedKey> => {
  const wrapped = await wrappedKeyIn(eventLog)
  if (wrapped === null) throw new Error('the event log has no installation key')
  return wrapped
}

/** Appends the slots. In an empty log, first appends `InstallationCreated`. Throws `AppendConflict` if another process changed the slots. */
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
  const name = randomUUID()
  const effectiveAt = new Date().toISOString()
  const wrapped: DomainEvent = { type: 'InstallationKeyWrapped', data: { key_check, slots: [...slots] } }
  const begin: DomainEvent = { type: 'InstallationCreated', data: { format: logFormat } }
  const events = expected === 'none' ? [begin, wrapped] : [wrapped]
  await appendChained(
    eventLog,
    installationStream,
    expected,
    events.map((event, n) =>
      encodeEvent(event, { id: eventIdOf(installationStream, name, n), actor, effectiveAt }),
    ),
  )
}

/**
 * Whether the log has its first event. Returns false if the log is empty. Throws `ConfigError` if the log is older than 1.0 or has another
 * format. `variable` is the variable with the log's URL.
 */
export const isBegun = async (
  eventLog: Pick<EventLog, 'read'>,
  variable = 'EVENT_LOG_URL',
): Promise<boolean> => {
  // Prices must be read before the first event. Every log gets prices later, so a log that has only prices is from before 1.0.
  const isUsed = (await readIfAny(eventLog, priceBookStream, { max: 1 })).length > 0
  const [first] = await readIfAny(eventLog, installationStream, { max: 1 })
  if (first === undefined && !isUsed) return false
  const event = first === undefined ? null : decodeEvent(first)
  if (event?.type !== 'InstallationCreated')
    throw new ConfigError(
      `${variable}: this event log was written by a release before 1.0 and cannot be used with this release. Nothing was changed.`,
    )
  if (event.data.format !== logFormat)
    throw new ConfigError(
      `${variable}: this event log has format ${event.data.format}, but this release reads only format ${logFormat}. Use a later release. Nothing was changed.`,
    )
  return true
}

/**
 * Unwraps the installation key of this event log. An empty log gets a single new key, even if several processes start at the same time.
 * `restored` are slots from a backup of the same installation. Their key is wrapped again with the given SECRET_KEYs. Throws `ConfigError`.
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
      expected: known.revision,
      actor: 'system',
      key_check: known.key_check,
      slots: [...known.slots, ...unwrapped.map(open.wrapFor)].slice(-slotsMax),
    })
  return open.key
}

/** One slot for the current SECRET_KEY and one for the next. */
export const slotsMax = 2

export const wrongKeyText = ({ slots }: WrappedKey): string =>
  `this installation was set up with another key (id ${slots.map(({ secret_key }) => secret_key).join(' or ')}), and no issued API key would work with this one. Start with that key`

const wrappedOrMade = async (eventLog: Log, secretKeys: readonly SecretKey[]): Promise<WrappedKey> => {
  if (await isBegun(eventLog)) return standingKeyIn(eventLog)
  const [secretKey] = secretKeys
  if (secretKey === undefined) throw new ConfigError('SECRET_KEY: not set')
  const slot = newKeySlot(secretKey)
  const made = openSlots([slot], [secretKey])
  if (made === null) throw new Error('a new slot cannot be opened')
  const wrapped = { key_check: checkOf(made.key), slots: [slot] }
  try {
    await appendSlots(eventLog, { expected: 'none', actor: 'system', ...wrapped })
    return { ...wrapped, revision: 1 }
  } catch (error) {
    if (!(error instanceof AppendConflict)) throw error
    return standingKeyIn(eventLog)
  }
}
