import type { Foundation } from '../foundation/foundation.ts'
import { noOperators, operatorsSince } from './operators.ts'
import { type Standing, standingOf, userRow } from './users.ts'

/**
 * Who a user is at this moment, for processes that ask often: each question reads the row and what the event log has gained since the
 * one before. Throws where either is away: then no one may do anything.
 */
export type UserDirectory = { standing(name: string): Promise<Standing> }

export const openUserDirectory = ({
  pool,
  eventLog,
}: Pick<Foundation, 'pool' | 'eventLog'>): UserDirectory => {
  let known = noOperators
  return {
    standing: async (name) => {
      const [row, state] = await Promise.all([userRow(pool, name), operatorsSince(eventLog, known)])
      // Of two questions at once the later answer is not always the newer one.
      if (state.events > known.events) known = state
      return standingOf(name, row, state.users.get(name))
    },
  }
}
