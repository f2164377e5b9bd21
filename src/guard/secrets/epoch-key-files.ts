import { createSecretKey, hkdfSync, randomBytes, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { link, open, readdir, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, syncDirectory } from '../../event-log/directory.ts'
import { derivingFrom, type InstallationKey, type Sealer, sealerOf } from './secrets.ts'

/**
 * Epoch keys as files in a directory that all processes of an installation share.
 *
 *   716.key                   the key of epoch 716 (mode 0600): its id and 32 random bytes
 *   716-Zr3kP0aQ.destroyed    an empty file that marks the key as destroyed on purpose
 *
 * A key file is always complete: it is written and synced under a temporary name, and then linked to its final name. The link fails if another
 * process has created the key first. When a key is destroyed, the mark is written before the key is removed. A key that is missing without a mark
 * is therefore lost: the directory is not mounted, is the wrong one, or was restored from an old copy. A key file is renamed before its bytes are
 * overwritten, so no process reads a partly overwritten key.
 *
 * The sealing key and the key's id are derived from both the file's bytes and the installation key. Neither is enough on its own, and a file
 * that is damaged or from another installation is detected.
 */
export type EpochKeyFiles = {
  list(): Promise<{ readonly keys: readonly EpochKey[]; readonly destroyed: ReadonlySet<string> }>
  /** Returns null if the key does not exist. Synchronous, because values are opened in synchronous code. A process reads each key only once. */
  readSync(epoch: number): EpochKey | null
  /** Creates a key, unless another process has already created it. */
  create(epoch: number): Promise<void>
  /** Destroys a key. Can be repeated after an interruption. */
  destroy(key: { readonly id: string; readonly epoch: number }): Promise<void>
}

export type EpochKey = {
  /** `<epoch>-<eight characters>`. Every value sealed under the key begins with this id. */
  readonly id: string
  readonly epoch: number
  sealer(purpose: string): Sealer
}

/** The epoch keys cannot be used. `message` contains the reason and the remedy, and is printed after "KEY_DIR: ". */
export class EpochKeyFault extends Error {
  override name = 'EpochKeyFault'
}

const keyBytes = 32
const idPattern = /^(\d{1,6})-[A-Za-z0-9_-]{8}$/
const keyFile = /^(\d{1,6})\.key$/
const destroyedFile = /^(\d{1,6}-[A-Za-z0-9_-]{8})\.destroyed$/

/** Returns null if the text is not the id of a key. */
export const epochOfKeyId = (id: string): number | null => {
  const found = idPattern.exec(id)?.[1]
  return found === undefined ? null : Number(found)
}

type KeyDirectory = {
  readonly dir: string
  /** Creates the directory, mode 0700. Called only before a key is created. */
  readonly makeDir: () => Promise<void>
  readonly salt: Buffer
}

/** If `secretKey` is a string, the installation key is derived from it. */
export const createEpochKeyFiles = ({
  secretKey: source,
  ...rest
}: Omit<KeyDirectory, 'salt'> & { readonly secretKey: string | InstallationKey }): EpochKeyFiles => {
  const key = typeof source === 'string' ? derivingFrom(source) : source
  const directory = { ...rest, salt: key.derive('epoch-key') }
  return {
    list: () => listed(directory),
    readSync: (epoch) => readKey(directory, epoch),
    create: (epoch) => createKey(directory, epoch),
    destroy: (key) => destroyKey(directory, key),
  }
}

const derived = (salt: Buffer, bytes: Buffer, purpose: string, length: number): Buffer =>
  Buffer.from(hkdfSync('sha256', bytes, salt, purpose, length))

const idOf = (salt: Buffer, epoch: number, bytes: Buffer): string =>
  `${epoch}-${derived(salt, bytes, 'id', 6).toString('base64url')}`

const parsed = ({ dir, salt }: KeyDirectory, epoch: number, text: string): EpochKey => {
  const [id, encoded = ''] = text.trim().split(' ')
  const bytes = Buffer.from(encoded, 'base64url')
  if (id === undefined || bytes.length !== keyBytes || id !== idOf(salt, epoch, bytes))
    throw new EpochKeyFault(
      `${join(dir, `${epoch}.key`)} is damaged or belongs to another installation. Set KEY_DIR to this installation's own directory.`,
    )
  const sealers = new Map<string, Sealer>()
  return {
    id,
    epoch,
    sealer: (purpose) => {
      const known =
        sealers.get(purpose) ?? sealerOf(createSecretKey(derived(salt, bytes, `seal/${purpose}`, keyBytes)))
      sealers.set(purpose, known)
      return known
    },
  }
}

const namesIn = ({ dir }: KeyDirectory): Promise<string[]> => readdir(dir).catch(nothingThere([], dir))

const listed = async (directory: KeyDirectory): ReturnType<EpochKeyFiles['list']> => {
  const names = await namesIn(directory)
  const keys: EpochKey[] = []
  for (const name of names) {
    const epoch = keyFile.exec(name)?.[1]
    const key = epoch === undefined ? null : readKey(directory, Number(epoch))
    if (key !== null) keys.push(key)
  }
  return { keys, destroyed: new Set(names.flatMap((name) => destroyedFile.exec(name)?.[1] ?? [])) }
}

const readKey = (directory: KeyDirectory, epoch: number): EpochKey | null => {
  const { dir } = directory
  const text = (): string | null => {
    try {
      return readFileSync(join(dir, `${epoch}.key`), 'utf8')
    } catch (error) {
      return nothingThere(null, dir)(error)
    }
  }
  const first = text()
  if (first === null) return null
  try {
    return parsed(directory, epoch, first)
  } catch (error) {
    // If the file no longer exists, another process destroyed the key during the read.
    if (text() === null) return null
    throw error
  }
}

const createKey = async (directory: KeyDirectory, epoch: number): Promise<void> => {
  const { dir, salt } = directory
  await directory.makeDir()
  const bytes = randomBytes(keyBytes)
  const draft = join(dir, `.${epoch}-${randomUUID()}`)
  try {
    const text = `${idOf(salt, epoch, bytes)} ${bytes.toString('base64url')}\n`
    await writeSynced(draft, 'wx', Buffer.from(text))
    await link(draft, join(dir, `${epoch}.key`)).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error
    })
    await unlink(draft)
    await syncDirectory(dir)
  } catch (cause) {
    await unlink(draft).catch(() => undefined)
    throw new EpochKeyFault(
      `no key can be created in ${dir} (${codeOf(cause) ?? 'unknown'}). Set KEY_DIR to a directory that this user can write to, on a file system with hard links.`,
      { cause },
    )
  }
}

const destroyKey = async (
  directory: KeyDirectory,
  { id, epoch }: { readonly id: string; readonly epoch: number },
): Promise<void> => {
  const { dir } = directory
  await writeSynced(join(dir, `${id}.destroyed`), 'a', Buffer.alloc(0))
  await syncDirectory(dir)
  const isHere = readKey(directory, epoch)?.id === id
  for (const name of await namesIn(directory)) {
    // Such a file can contain the bytes of the key, if a process crashed while it created or destroyed the key.
    if (!(isHere && name === `${epoch}.key`) && !name.startsWith(`.${epoch}-`)) continue
    await overwrite(dir, name, epoch).catch((error: unknown) => {
      // Another process is also destroying the key.
      if (codeOf(error) !== 'ENOENT') throw error
    })
  }
  await syncDirectory(dir)
}

const remedies: Readonly<Record<string, string>> = {
  EACCES: 'Run as the user that runs the service.',
  EPERM: 'Run as the user that runs the service.',
  EMFILE: 'The process has too many open files; raise its limit (ulimit -n).',
  ENFILE: 'The machine has too many open files.',
}

/** Returns a handler for `catch`, which returns a default if the file is missing. Any other error names the directory. */
const nothingThere =
  <Nothing>(nothing: Nothing, dir: string) =>
  (cause: unknown): Nothing => {
    const code = codeOf(cause) ?? 'unknown'
    if (code === 'ENOENT') return nothing
    throw new EpochKeyFault(
      `${dir} cannot be read (${code}). ${remedies[code] ?? 'Check KEY_DIR and its disk.'}`,
      { cause },
    )
  }

const writeSynced = async (path: string, flags: string, bytes: Buffer): Promise<void> => {
  const file = await open(path, flags, 0o600)
  try {
    await file.write(bytes, 0, bytes.length, 0)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Renames the file, and then overwrites its bytes. That only helps on disks that write in place, so no guarantee depends on it. */
const overwrite = async (dir: string, name: string, epoch: number): Promise<void> => {
  const nameless = join(dir, `.${epoch}-${randomUUID()}`)
  await rename(join(dir, name), nameless)
  await writeSynced(nameless, 'r+', randomBytes(128))
  await unlink(nameless)
}
