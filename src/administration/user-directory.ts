import type { Foundation } from '../foundation/foundation.ts'
import { type LoggedFactor, noOperators, operatorsSince } from './operators.ts'
import { type Standing, standingOf, userRow } from './users.ts'

/**
 * Who a user is at this moment, for processes that ask often: each question reads the row and what the event log has gained since the
 * one before. Throws where either is away: then no one may do anything.
 */
export type UserDirectory = {
  standing(name: string): Promise<Standing>
  /** What the event log says of the user's second factor, whatever is in the row; null: the password is enough. */
  secondFactor(name: string): Promise<LoggedFactor | null>
}

export const openUserDirectory = ({
  pool,
  eventLog,
}: Pick<Foundation, 'pool' | 'eventLog'>): UserDirectory => {
  let known = noOperators
  const now = async () => {
    const state = await operatorsSince(eventLog, known)
    // Of two questions at once the later answer is not always the newer one.
    if (state.events > known.events) known = state
    return state
  }
  return {
    secondFactor: async (name) => (await now()).factors.get(name) ?? null,
    standing: async (name) => {
      const [row, state] = await Promise.all([userRow(pool, name), now()])
      return standingOf(name, row, state.users.get(name))
    },
  }
}
