import { open } from 'node:fs/promises'

/** Makes renames, new files and deletions in a directory survive a power failure. */
export const syncDirectory = async (path: string): Promise<void> => {
  await using directory = await open(path, 'r')
  await directory.sync()
}

/** The operating system's code for a failure, such as `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
