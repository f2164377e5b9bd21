import { readFile, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { InputFault } from '../administration/input.ts'

const packageRoot = resolve(import.meta.dirname, '../..')

/**
 * The user's current folder. `npm run cli` changes to the folder of the package first, and stores the original folder in INIT_CWD; any
 * other process may have inherited that variable from an outer script, and then it is wrong.
 */
const userFolder = (): string => {
  const { npm_lifecycle_event: script, INIT_CWD: called } = process.env
  const here = process.cwd()
  return script === 'cli' && called !== undefined && called !== '' && here === packageRoot ? called : here
}

/** A path as the user means it, absolute; `-`, for standard input, is returned unchanged. */
export const fromUser = (path: string): string => (path === '-' ? path : resolve(userFolder(), path))

/** The text of a file. Throws `InputFault` of the field if it cannot be read, or has more than `bytesMax` bytes. */
export const readTextFile = async (field: string, path: string, bytesMax: number): Promise<string> => {
  try {
    const { size } = await stat(path)
    if (size > bytesMax) throw new RangeError(`it has ${size} bytes; at most ${bytesMax} are read`)
    return await readFile(path, 'utf8')
  } catch (error) {
    throw new InputFault(field, `${path} cannot be read: ${reasonOf(error)}`)
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
