import { constants } from 'node:fs'
import { access, mkdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type Config, ConfigError } from '../config.ts'
import { codeOf } from './postgres-cluster.ts'

/** Where the epoch keys are. */
export const keyDirOf = ({ KEY_DIR, DATA_DIR }: Pick<Config, 'KEY_DIR' | 'DATA_DIR'>): string =>
  resolve(KEY_DIR ?? join(DATA_DIR, 'keys'))

/** No path is deeper: the operating systems end paths at some thousand characters. */
const missingMax = 256

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'its file system makes no directories',
  ENOTDIR: 'a part of it is a file',
  EEXIST: 'a part of it is a file',
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'its file system is read-only',
  ENOSPC: 'its disk is full',
  ENAMETOOLONG: 'it is too long',
  ELOOP: 'its links lead in a circle',
}

/**
 * Makes the directory a variable names and what is missing above it (mode 0700), and makes sure that it can be written to. Throws
 * `ConfigError` naming the variable and the reason.
 *
 * One directory after the other: `mkdir` with `recursive` never returns where a file system refuses with ENOENT what its
 * parent has room for, as /proc does.
 */
export const makeDataDir = async (
  dataDir: string,
  variable: 'DATA_DIR' | 'KEY_DIR' = 'DATA_DIR',
): Promise<void> => {
  const path = resolve(dataDir)
  try {
    for (const missing of (await missingOf(path)).reverse())
      await mkdir(missing, { mode: 0o700 }).catch((error: unknown) => {
        // Another process was first; what it made is looked at below.
        if (codeOf(error) !== 'EEXIST') throw error
      })
    // Beneath a file nothing can be looked for, so this also tells a directory from a file.
    await access(`${path}/.`, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (cause) {
    const code = codeOf(cause) ?? 'unknown'
    throw new ConfigError(
      `${variable}: ${path} cannot be made or written to: ${reasons[code] ?? code} (${code}). Name a directory this user can create or write to.`,
      { cause },
    )
  }
}

/** The directory and those above it that do not exist, innermost first. */
const missingOf = async (path: string): Promise<string[]> => {
  const missing: string[] = []
  for (let one = path; missing.length < missingMax; one = dirname(one)) {
    const found = await stat(one).catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT') return null
      throw error
    })
    if (found !== null) break
    missing.push(one)
  }
  return missing
}
