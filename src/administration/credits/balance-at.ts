import type { MicroCredits } from '../../billing/money.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import {
  type AsOf,
  balanceOfFold,
  foldBalance,
  newBalanceFold,
  recordedMsOf,
} from '../../ledger/explain/balance-at.ts'
import { ledgerPages } from '../../ledger/read-ledger.ts'
import { CommandRefused } from '../../ledger/write/commit.ts'

/**
 * The balance at one instant, as it was known at another, folded from the ledger. `revision` is the last event
 * recorded by then; −1 if none. Throws `CommandRefused` if the ledger does not exist.
 */
export const balanceAt = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  {
    organizationId,
    asOf,
    onProgress,
  }: { organizationId: string; asOf: AsOf; onProgress?: (events: number) => void },
): Promise<{ balance: MicroCredits; overdrawn: MicroCredits; revision: number }> => {
  const fold = newBalanceFold()
  let read = 0
  reading: for await (const page of ledgerPages(eventLog, organizationId)) {
    read += page.length
    for (const recorded of page) {
      const event = decodeEvent(recorded)
      // No event is recorded before its predecessor.
      if (recordedMsOf(event) > asOf.knownAtMs) break reading
      foldBalance(fold, event, asOf)
    }
    onProgress?.(read)
  }
  if (read === 0) throw new CommandRefused(`there is no ledger of ${organizationId}; see "org list"`)
  return { balance: balanceOfFold(fold, asOf), overdrawn: fold.overdrawn, revision: fold.revision }
}
