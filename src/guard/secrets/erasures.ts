/**
 * The list of erased people, in a file in KEY_DIR. A backup still contains people who were erased after it was made. KEY_DIR is in no backup, and
 * every restore needs it, so the list is always available to erase these people again.
 *
 * Each line contains a time and the keyed hashes of one person's identifiers. Without the installation key, a line identifies no one.
 */
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type ErasureFile = {
  /** Resolves when the entry is durable. If it rejects, the erasure must fail. */
  add(hmacs: readonly string[], at: Date): Promise<void>
  /** Returns all people who were ever erased. If it rejects, data about people must not be used. */
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
  readonly makeDir: () => Promise<void>
}): ErasureFile => {
  const path = join(dir, fileName)
  return {
    add: async (hmacs, at) => {
      if (hmacs.length === 0) return
      await makeDir()
      const file = await open(path, 'a', 0o600)
      try {
        // Starts a new line, because a killed process can have left an incomplete one.
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
