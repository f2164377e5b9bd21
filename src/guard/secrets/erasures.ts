/**
 * The erased people, in a file of KEY_DIR. A backup is older than later erasures, and restores the people they erased. KEY_DIR is in no
 * backup, and is needed to restore one, so this list is available when the old rows return.
 *
 * A line is a time and the keyed hashes of one person's identifiers, under the installation key: it identifies no one.
 */
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type ErasureFile = {
  /** On the disk when it resolves. Rejects if it cannot be written: then the erasure is not done. */
  add(hmacs: readonly string[], at: Date): Promise<void>
  /** Everyone who was ever erased. Rejects if the file cannot be read: then no one may be served. */
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
        // A process that was killed while it wrote left a line without an end, so this one starts on a new line.
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
