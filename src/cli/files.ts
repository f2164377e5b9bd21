import { readFile, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { InputFault } from '../administration/input.ts'
import { codeOf } from '../event-log/directory.ts'

const packageRoot = resolve(import.meta.dirname, '../..')

/**
 * Returns the user's folder. `npm run cli` changes to the package's folder and stores the user's folder in INIT_CWD. INIT_CWD is
 * used only for the script `cli`, because other npm scripts set it as well.
 */
const userFolder = (): string => {
  const { npm_lifecycle_event: script, INIT_CWD: called } = process.env
  const here = process.cwd()
  return script === 'cli' && called !== undefined && called !== '' && here === packageRoot ? called : here
}

/** Makes a typed path absolute. Returns `-`, for standard input, unchanged. */
export const fromUser = (path: string): string => (path === '-' ? path : resolve(userFolder(), path))

/** Returns the text of a file. Throws `InputFault` for the field if the file cannot be read or has more than `bytesMax` bytes. */
export const readTextFile = async (field: string, path: string, bytesMax: number): Promise<string> => {
  try {
    const { size } = await stat(path)
    if (size > bytesMax) throw new RangeError(`it has ${size} bytes, but the maximum is ${bytesMax}`)
    return await readFile(path, 'utf8')
  } catch (error) {
    throw new InputFault(
      field,
      codeOf(error) === 'ENOENT' ? `there is no file ${path}` : `${path} cannot be read: ${reasonOf(error)}`,
    )
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
