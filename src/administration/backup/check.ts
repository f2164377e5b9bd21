import { openSlots, type SecretKey } from '../../guard/secrets/installation-key.ts'
import { type InstallationKey, sameHmac } from '../../guard/secrets/secrets.ts'
import { ArchiveFault, type FileDigest, readArchive } from './archive.ts'
import {
  type Digests,
  digestsName,
  digestsSchema,
  type Manifest,
  macOf,
  manifestName,
  manifestSchema,
  tableOfChunk,
} from './contents.ts'

export type CheckedBackup = FileDigest & {
  readonly path: string
  readonly manifest: Manifest
  readonly rows: Readonly<Record<string, number>>
  readonly key: InstallationKey
}

type Checking = {
  /** One of these keys must open the installation key in the manifest. */
  readonly secretKeys: readonly SecretKey[]
  /** Called with each compressed part of a table, in order. The rest of the file has not been checked yet. */
  readonly onRows?: (table: string, chunk: Buffer, manifest: Manifest) => Promise<void>
  readonly onProgress?: (readBytes: number) => void
  /** Called before the rows are read. Throws if the backup cannot be accepted. */
  readonly accept?: (manifest: Manifest) => void | Promise<void>
}

/**
 * Reads a whole backup and proves that it is unchanged and was made with one of the SECRET_KEYs. Throws an `ArchiveFault` that
 * names the file and the faulty part.
 */
export const checkBackup = async (
  path: string,
  { secretKeys, onRows, onProgress, accept }: Checking,
): Promise<CheckedBackup> => {
  const found: Digests['entries'] = []
  let manifest: Manifest | undefined
  let key: InstallationKey | undefined
  let digests: Digests | undefined
  let readBytes = 0
  const reading = readArchive(path)
  for (let next = await reading.next(); ; next = await reading.next()) {
    if (next.done === true) {
      if (manifest === undefined || key === undefined || digests === undefined)
        throw new ArchiveFault(`${path} is incomplete or not a backup: its end is missing`)
      return { path, manifest, key, rows: digests.rows, ...next.value }
    }
    const { name, bytes, sha256 } = next.value
    readBytes += bytes.length
    onProgress?.(readBytes)
    if (digests !== undefined) throw new ArchiveFault(`${path} is damaged: ${name} comes after its end`)
    if (name === digestsName) {
      digests = parsed(path, name, bytes, digestsSchema)
      if (key !== undefined) refuseDifferent(path, found, digests, key)
      continue
    }
    found.push({ name, sha256 })
    if (manifest === undefined) {
      if (name !== manifestName) throw new ArchiveFault(`${path} is not a backup: it begins with ${name}`)
      manifest = parsed(path, name, bytes, manifestSchema)
      await accept?.(manifest)
      key = openSlots(manifest.installation_key, secretKeys)?.key
      if (key === undefined)
        throw new ArchiveFault(
          `${path} was not made with this SECRET_KEY, or ${manifestName} in it is damaged: its content cannot be trusted`,
        )
      continue
    }
    const table = tableOfChunk(name)
    if (table === null || !manifest.tables.some((one) => one.name === table))
      throw new ArchiveFault(`${path} is damaged: it contains ${name}, which does not belong in a backup`)
    await onRows?.(table, bytes, manifest)
  }
}

const parsed = <T>(
  path: string,
  name: string,
  bytes: Buffer,
  schema: { safeParse(value: unknown): { success: true; data: T } | { success: false; error: Error } },
): T => {
  try {
    const result = schema.safeParse(JSON.parse(bytes.toString('utf8')))
    if (result.success) return result.data
    throw result.error
  } catch (cause) {
    throw new ArchiveFault(`${path} is damaged, or made by a newer release: ${name} cannot be read`, {
      cause,
    })
  }
}

const refuseDifferent = (
  path: string,
  found: Digests['entries'],
  digests: Digests,
  key: InstallationKey,
): void => {
  if (!sameHmac(digests.mac, macOf(key, digests)))
    throw new ArchiveFault(
      `${digestsName} in ${path} is damaged, or was made by another installation: its content cannot be trusted`,
    )
  for (const [i, { name, sha256 }] of digests.entries.entries()) {
    const there = found[i]
    if (there?.name !== name || there.sha256 !== sha256)
      throw new ArchiveFault(`${path} is damaged at ${name}`)
  }
  if (found.length !== digests.entries.length)
    throw new ArchiveFault(
      `${path} is damaged: it contains ${found.length - digests.entries.length} extra parts`,
    )
}
