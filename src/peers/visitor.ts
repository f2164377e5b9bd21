import { within } from '../concurrency/deadline.ts'
import { ownersAgreed } from './owners-wanted.ts'
import type { Party, PartyContext } from './party.ts'
import { liveProcesses } from './processes-table.ts'

/**
 * A process that owns nothing and sends its commands to their owners. It looks at the table when it is used: at the first
 * use, and after a while without use, a command waits for that; in between it looks in the background.
 */
export const createVisitor = ({ pool, table, ownership, links, known, limits }: PartyContext): Party => {
  let owners = limits.ownersMin
  let looking: Promise<void> | undefined
  let lookedMs = Number.NEGATIVE_INFINITY
  const look = async (): Promise<void> => {
    try {
      const rows = await liveProcesses(pool)
      table.works()
      known.saw(rows)
      links.see(rows)
      await within(links.settled(), { waitMs: limits.openingMs }, () => undefined)
    } catch (error) {
      table.failed(error)
    }
    lookedMs = performance.now()
    looking = undefined
  }
  return {
    opening: () => {
      const sinceMs = performance.now() - lookedMs
      if (sinceMs < limits.lookMs) return null
      looking ??= look()
      return sinceMs < limits.staleMs ? null : within(looking, { waitMs: limits.openingMs }, () => undefined)
    },
    others: () => links.connected() > 0,
    changed: () => {
      const among = links.usable()
      const ids = among.map(({ id }) => id)
      owners = ownersAgreed(ids, known.rows(), owners)
      ownership.share(among, owners)
    },
    // It looks when it is used.
    lost: () => undefined,
  }
}
