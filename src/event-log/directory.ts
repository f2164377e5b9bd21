import { randomUUID } from 'node:crypto'
import { link, open, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'

/** Makes renames, new files and deletions in a directory durable. */
export const syncDirectory = async (path: string): Promise<void> => {
  await using directory = await open(path, 'r')
  await directory.sync()
}

/**
 * Creates a file (mode 0600) durably and atomically. A file that already exists is left unchanged.
 */
export const createDurably = async (path: string, text: string): Promise<void> => {
  const draft = `${path}.${randomUUID()}.draft`
  try {
    {
      await using file = await open(draft, 'wx', 0o600)
      await file.writeFile(text)
      await file.sync()
    }
    await link(draft, path).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error
    })
    await syncDirectory(dirname(path))
  } finally {
    await unlink(draft).catch(() => undefined)
  }
}

/** The operating system's code for a failure, such as `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
