import { resolve } from 'node:path'

const packageRoot = resolve(import.meta.dirname, '../..')

/**
 * Where the user is. `npm run cli` goes to the folder of the package first, and tells in INIT_CWD where it was called; any
 * other process may have inherited that variable from a script further up, and it says nothing of this one.
 */
const userFolder = (): string => {
  const { npm_lifecycle_event: script, INIT_CWD: called } = process.env
  const here = process.cwd()
  return script === 'cli' && called !== undefined && called !== '' && here === packageRoot ? called : here
}

/** A path as the user means it, absolute; `-`, for standard input, stays what it is. */
export const fromUser = (path: string): string => (path === '-' ? path : resolve(userFolder(), path))
