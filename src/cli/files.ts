import { resolve } from 'node:path'

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
