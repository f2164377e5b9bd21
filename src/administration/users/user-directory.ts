import type { UserRole } from '../../events/users.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { userOfToken } from './operator-tokens.ts'
import { type LoggedFactor, noOperators, operatorsSince } from './operators.ts'
import { type Standing, standingOf, userRow } from './users.ts'

/**
 * The current state of a user, for processes that need it often. Each call reads the user's row, and the events added since the
 * previous call. Throws if the row or the events cannot be read.
 */
export type UserDirectory = {
  standing(name: string): Promise<Standing>
  /** The user's second factor according to the event log, regardless of the row; null if the password is enough. */
  secondFactor(name: string): Promise<LoggedFactor | null>
  /** The owner of an operator token, and the owner's rights. Throws `ConfigError` if the token does not work. */
  ownerOf(token: string): Promise<{ readonly user: string; readonly role: UserRole }>
}

export const openUserDirectory = (
  parts: Pick<Foundation, 'pool' | 'eventLog' | 'secrets'>,
): UserDirectory => {
  const { pool, eventLog } = parts
  let known = noOperators
  const now = async () => {
    const state = await operatorsSince(eventLog, known)
    // Of two concurrent calls, the one that returns last does not always have the newer state.
    if (state.events > known.events) known = state
    return state
  }
  return {
    ownerOf: (token) => userOfToken(parts, token, now),
    secondFactor: async (name) => (await now()).factors.get(name) ?? null,
    standing: async (name) => {
      const [row, state] = await Promise.all([userRow(pool, name), now()])
      return standingOf(name, row, state.users.get(name))
    },
  }
}
