import { constants } from 'node:fs'
import { access, readdir, stat } from 'node:fs/promises'
import { isAbsolute, join, relative, resolve } from 'node:path'
import type pg from 'pg'
import type { Config } from '../../config.ts'
import { codeOf } from '../../event-log/directory.ts'
import { type EventLog, StreamMissing } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { signerOf } from '../../event-log/tree/signed-note.ts'
import { createSigningKeyFiles } from '../../event-log/tree/signing-key.ts'
import type { LogCheckpointed, SigningKeyAnnounced } from '../../events/checkpoints.ts'
import { checkpointStream } from '../../events/streams.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { wrappedKeyIn, wrongKeyText } from '../../foundation/installation-key.ts'
import { knownSecretKeysOf } from '../../foundation/secret-key.ts'
import { createEpochKeyFiles } from '../../guard/epoch-key-files.ts'
import { openEpochKeys } from '../../guard/epoch-keys.ts'
import { openSlots } from '../../guard/installation-key.ts'
import { listEpochKeys } from '../epoch-keys.ts'
import { type Check, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** Whether the secrets are there, are the right ones, and are no one else's to read. No secret is shown, and none is made. */

export const keyDirChecks = (config: Config): readonly Check[] => [
  { about: 'KEY_DIR', look: () => keyDir(config) },
  { about: 'secret files', look: () => secretFiles(config) },
]

const othersMask = 0o077

const keyDir = async (config: Config): Promise<Told | Told[]> => {
  const dir = keyDirOf(config)
  try {
    await access(`${dir}/.`, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return ok(`${dir} is made with the first key`)
    return fault(
      `${dir} cannot be read and written (${codeOf(error) ?? 'unknown'})`,
      'Name a directory of the user that runs the service, and run this as that user. Without the keys nothing about people can be sealed.',
    )
  }
  const found: Told[] = []
  const { mode } = await stat(dir)
  if ((mode & othersMask) !== 0)
    found.push(warning(`${dir} is open to other users (mode ${modeText(mode)})`, `chmod 700 ${dir}`))
  for (const name of (await readdir(dir)).filter((one) => one.endsWith('.key')))
    found.push(...(await openToOthers(join(dir, name))))
  const within = relative(resolve(config.DATA_DIR), dir)
  const inside = within === '' || (!within.startsWith('..') && !isAbsolute(within))
  if (inside && (config.KEY_DIR !== undefined || config.DATABASE_URL !== undefined))
    found.push(
      warning(
        `${dir} is inside DATA_DIR: a copy of that directory holds the data and the keys that erase them`,
        'Stop the service, move it elsewhere, and set KEY_DIR.',
      ),
    )
  if (found.length > 0) return found
  return ok(inside ? `${dir}; it is inside DATA_DIR: leave it out of backups of that directory` : dir)
}

const modeText = (mode: number): string => (mode & 0o777).toString(8)

/** Another error than that it is not there: the file is this user's to read, or it is a fault. */
const openToOthers = async (path: string): Promise<Told[]> => {
  try {
    await access(path, constants.R_OK)
    const { mode } = await stat(path)
    return (mode & othersMask) === 0
      ? []
      : [warning(`${path} can be read by other users (mode ${modeText(mode)})`, `chmod 600 ${path}`)]
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []
    return [
      fault(
        `${path} cannot be read (${codeOf(error) ?? 'unknown'})`,
        'Run as the user that runs the service.',
      ),
    ]
  }
}

const secretFiles = async ({ DATA_DIR, TLS_KEY }: Config): Promise<Told | Told[]> => {
  const paths = [
    ...['secret_key', 'secret_key_new', 'postgres.password', 'postgres.json', 'demo.json'].map((name) =>
      join(DATA_DIR, name),
    ),
    ...(TLS_KEY === undefined ? [] : [TLS_KEY]),
  ]
  const found = (await Promise.all(paths.map(openToOthers))).flat()
  return found.length > 0 ? found : ok('no secret of this host can be read by other users')
}

type Keyed = { readonly config: Config; readonly pool: pg.Pool; readonly eventLog: EventLog }

export const keyChecks = (keyed: Keyed): readonly Check[] => [
  { about: 'SECRET_KEY', look: () => secretKeyFits(keyed) },
  { about: 'epoch keys', look: () => epochKeys(keyed) },
]

type Signing = { readonly config: Config; readonly eventLog: EventLog }

export const signingKeyCheck = (signing: Signing): Check => ({
  about: 'signing key',
  look: () => signingKey(signing),
})

const secretKeyFits = async ({ config, eventLog }: Keyed): Promise<Told> => {
  const given = await knownSecretKeysOf(config)
  const wrapped = await wrappedKeyIn(eventLog)
  if (wrapped === null) return ok('no installation key was made yet; the first start does it')
  const open = openSlots(wrapped.slots, given ?? [])
  if (open === null)
    return fault(
      wrongKeyText(wrapped),
      'Set SECRET_KEY, or the file secret_key in DATA_DIR, to what it was. Without it issued keys do not work and profiles cannot be opened.',
    )
  const newest = wrapped.slots.at(-1)?.secret_key
  if (wrapped.slots.length === 1) return ok(`${open.by.id} opens the installation key`)
  return warning(
    `SECRET_KEY is being rotated: processes start with ${wrapped.slots.map(({ secret_key }) => secret_key).join(' or ')}`,
    `When every process runs with ${newest}: "secrets rotate --finish".`,
  )
}

const epochKeys = async ({ config, pool, eventLog }: Keyed): Promise<Told | Told[]> => {
  const dir = keyDirOf(config)
  const silent = { info: () => undefined, error: () => undefined }
  try {
    const wrapped = await wrappedKeyIn(eventLog)
    const open = openSlots(wrapped?.slots ?? [], (await knownSecretKeysOf(config)) ?? [])
    if (open === null) return warning('not looked at without the installation key', 'See SECRET_KEY.')
    const files = createEpochKeyFiles({ dir, makeDir: async () => undefined, secretKey: open.key })
    const keys = await listEpochKeys({
      epochKeys: openEpochKeys({ pool, files, clock: Date, logger: silent }),
    })
    const found = keys.flatMap((key): Told[] => {
      if (key.state === 'lost')
        return [
          fault(
            `the key ${key.id} that data about people are sealed under is not in ${dir}`,
            'Mount or restore the directory. Where it is lost for good, "epoch-key abandon" gives up what is sealed under it.',
          ),
        ]
      return key.state !== 'destroyed' && key.destroyedByMs < Date.now()
        ? [
            warning(
              `the key ${key.id} was to be destroyed by ${new Date(key.destroyedByMs).toISOString()}, and is still there`,
              'See that a process with the role jobs runs: its job renew-seals destroys it.',
            ),
          ]
        : []
    })
    if (found.length > 0) return found
    const current = keys.find(({ state }) => state === 'in use')
    return ok(
      current === undefined
        ? 'none is needed yet'
        : `${current.id} is in use until ${new Date(current.untilMs).toISOString().slice(0, 10)}`,
    )
  } catch (error) {
    return fault(reasonOf(error), 'Put back the directory of this installation.')
  }
}

const signingKey = async ({ config, eventLog }: Signing): Promise<Told> => {
  const files = createSigningKeyFiles({ dir: keyDirOf(config), makeDir: async () => undefined })
  try {
    const { announced, checkpoint } = await newestOfCheckpoints(eventLog)
    const present = files.present()
    if (announced === null && checkpoint === null)
      return ok('none was announced yet; the first checkpoint does it')
    const key =
      announced === null
        ? checkpoint && signerOf(checkpoint.note, checkpoint.origin, present)
        : present.find(({ id }) => id === announced.key_id)
    if (key) return ok(`${key.id}, as the event log announced it`)
    return fault(
      `${files.path} does not hold the key that the event log announced last: no checkpoint can be signed`,
      'Put the copy of that file back. If there is none: event-log announce-key --reason …',
    )
  } catch (error) {
    return fault(reasonOf(error), 'Run "event-log verify": it names what is wrong with the checkpoints.')
  }
}

/** A new key, or a new tree, is announced right before the checkpoint it is for. */
const checkpointsMax = 20

/**
 * What the stream of checkpoints says at its end: the key that was announced after the last checkpoint, if any, and the last checkpoint.
 * Signatures are not checked: "event-log verify" does that, over all of them.
 */
export const newestOfCheckpoints = async (
  eventLog: Pick<EventLog, 'read'>,
): Promise<{
  readonly announced: SigningKeyAnnounced | null
  readonly checkpoint: (LogCheckpointed & { readonly at: string }) | null
}> => {
  const page = await eventLog
    .read(checkpointStream, { direction: 'backwards', max: checkpointsMax })
    .catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
  let announced: SigningKeyAnnounced | null = null
  for (const recorded of page) {
    const { type, data, metadata } = decodeEvent(recorded)
    if (type === 'SigningKeyAnnounced') announced ??= data
    if (type === 'LogCheckpointed')
      return { announced, checkpoint: { ...data, at: metadata.recorded_at ?? metadata.effective_at } }
  }
  return { announced, checkpoint: null }
}
