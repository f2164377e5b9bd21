import { open } from 'node:fs/promises'

/** Makes files survive a power failure, and reads the operating system's error codes. */

/** Makes renames, new files and deletions in a directory durable: a rename is durable only once the parent directory is synced. */
export const syncDirectory = async (path: string): Promise<void> => {
  await using directory = await open(path, 'r')
  await directory.sync()
}

/** The operating system's name for a failure, such as `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
