import type { Month } from '../../billing/months.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/write/commit.ts'
import { type ClosedMonth, closeMonth } from './close-month.ts'
import type { Reading } from './statements.ts'

/** The result for one organization's month. `closed` is null if there was nothing to close, or the closing was refused. */
export type MonthEnded = {
  readonly organizationId: string
  readonly closed: ClosedMonth | null
  readonly refused: string | null
}

/**
 * Closes a month for several organizations, one after the other. If a closing is refused, the other organizations' months are still
 * closed. Any other failure ends the run, and another run continues with the rest.
 */
export const closeMonths = async (
  foundation: Pick<Foundation, 'ledger'> & Reading,
  {
    organizations,
    month,
    actor,
    onProgress,
  }: {
    readonly organizations: readonly string[]
    readonly month: Month
    readonly actor: string
    readonly onProgress?: (organizationId: string, events: number) => void
  },
): Promise<MonthEnded[]> => {
  const ended: MonthEnded[] = []
  for (const organizationId of organizations)
    try {
      const closed = await closeMonth(foundation, {
        organizationId,
        month,
        actor,
        nowMs: Date.now(),
        onProgress: (events) => onProgress?.(organizationId, events),
      })
      ended.push({ organizationId, closed, refused: null })
    } catch (error) {
      if (!(error instanceof CommandRefused)) throw error
      ended.push({ organizationId, closed: null, refused: error.message })
    }
  return ended
}
