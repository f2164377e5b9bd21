import { constants } from 'node:fs'
import { access, mkdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type Config, ConfigError } from '../config.ts'
import { codeOf } from '../event-log/directory.ts'

/** Returns the directory of the epoch keys. */
export const keyDirOf = ({ KEY_DIR, DATA_DIR }: Pick<Config, 'KEY_DIR' | 'DATA_DIR'>): string =>
  resolve(KEY_DIR ?? join(DATA_DIR, 'keys'))

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'its file system cannot create directories',
  ENOTDIR: 'a part of it is a file',
  EEXIST: 'a part of it is a file',
  EACCES: 'this user is not allowed to write there',
  EPERM: 'this user is not allowed to write there',
  EROFS: 'its file system is read-only',
  ENOSPC: 'its disk is full',
  ENAMETOOLONG: 'it is too long',
  ELOOP: 'its symbolic links form a loop',
}

/**
 * Creates the directory in a variable with its missing parents (mode 0700), and checks that it is writable. Throws `ConfigError` with the
 * variable and the reason.
 */
export const makeDataDir = async (
  dataDir: string,
  variable: 'DATA_DIR' | 'KEY_DIR' = 'DATA_DIR',
): Promise<void> => {
  const path = resolve(dataDir)
  try {
    await makeDirectory(path)
    // This check also detects a path that is a file, because `path/.` exists only in a directory.
    await access(`${path}/.`, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (cause) {
    const code = codeOf(cause) ?? 'unknown'
    throw new ConfigError(
      `${variable}: ${path} cannot be created or written to: ${reasons[code] ?? code} (${code}). Set ${variable} to a directory that this user can create or write to.`,
      { cause },
    )
  }
}

/**
 * Creates a directory and its parents. The recursive `mkdir` of Node.js never returns on a file system such as /proc, which answers ENOENT even
 * though the parent exists. The recursion is limited by the length of the path.
 */
const makeDirectory = async (path: string): Promise<void> => {
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    // The path can also be a file, which the caller detects.
    if (codeOf(error) === 'EEXIST') return
    if (codeOf(error) !== 'ENOENT') throw error
    await makeDirectory(dirname(path))
    await mkdir(path, { mode: 0o700 }).catch((again: unknown) => {
      // Another process created the directory first.
      if (codeOf(again) !== 'EEXIST') throw again
    })
  }
}
