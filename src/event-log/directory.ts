import { open } from 'node:fs/promises'

/** Files that must be there after a power failure, and what the operating system says of those that are not. */

/** Makes names durable that came or went: a renamed file or directory is durable only once its parent is. */
export const syncDirectory = async (path: string): Promise<void> => {
  await using directory = await open(path, 'r')
  await directory.sync()
}

/** The operating system's name for a failure, such as `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
