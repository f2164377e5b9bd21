/**
 * Who was erased, in a file of KEY_DIR: a backup is older than the erasures after it, and brings back whom they erased. KEY_DIR is in no
 * backup, and whoever restores one needs it, so this list is there when the old rows are.
 *
 * A line is an instant and the keyed hashes of the identifiers of one person, under the installation key: it names no one.
 */
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type ErasureFile = {
  /** On the disk when it resolves. Rejects where it cannot be written: then the erasure is not done. */
  add(hmacs: readonly string[], at: Date): Promise<void>
  /** Everyone who was ever erased. Rejects where the file cannot be read: no one may be served then. */
  list(): Promise<readonly Erased[]>
}

type Erased = { readonly at: Date; readonly hmacs: readonly string[] }

const fileName = 'erased'
const line = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Za-z0-9_-]{16,128}(?:,[A-Za-z0-9_-]{16,128})*)$/

export const createErasureFile = ({
  dir,
  makeDir,
}: {
  readonly dir: string
  /** Makes the directory, mode 0700. */
  readonly makeDir: () => Promise<void>
}): ErasureFile => {
  const path = join(dir, fileName)
  return {
    add: async (hmacs, at) => {
      if (hmacs.length === 0) return
      await makeDir()
      const file = await open(path, 'a', 0o600)
      try {
        // A process that was killed while it wrote left a line without an end; this one begins behind it.
        await file.write(`\n${at.toISOString()} ${hmacs.join(',')}\n`)
        await file.sync()
      } finally {
        await file.close()
      }
      const directory = await open(dir, 'r')
      await directory.sync().finally(() => directory.close())
    },
    list: async () => {
      const text = await readFile(path, 'utf8').catch((error: unknown) => {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return ''
        throw error
      })
      return text.split('\n').flatMap((one) => {
        const [, at, hmacs] = line.exec(one) ?? []
        return at === undefined || hmacs === undefined ? [] : [{ at: new Date(at), hmacs: hmacs.split(',') }]
      })
    },
  }
}
