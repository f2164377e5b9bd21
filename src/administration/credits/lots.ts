import { formatCredits } from '../../billing/money.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { openedBy } from '../../ledger/explain/lots-drawn.ts'
import type { GrantedLot } from '../../ledger/granted-lot.ts'
import { ledgerEventAt } from '../../ledger/read-ledger.ts'
import { registeredAccount } from './credits.ts'

/** `left` and `granted` are canonical decimal strings. */
type LotLeft = GrantedLot & { readonly left: string }

/** Lots that have credits left, in the order in which charges use them. Throws `CommandRefused` if the organization is not registered. */
export const lotsLeft = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  organizationId: string,
): Promise<{ lots: LotLeft[]; overdrawn: string; revision: number }> => {
  const account = await registeredAccount(ledger, organizationId)
  const nowMs = Date.now()
  const lots: LotLeft[] = []
  for (const { grantId, revision, expiresAtMs, remaining } of account.lots) {
    if (expiresAtMs <= nowMs) continue
    const opened = openedBy(await ledgerEventAt(eventLog, organizationId, revision), grantId)
    if (opened === null)
      throw new Error(`the ledger of ${organizationId} does not open lot ${grantId} at revision ${revision}`)
    lots.push({ ...opened, left: formatCredits(remaining) })
  }
  return { lots, overdrawn: formatCredits(account.overdrawn), revision: account.revision }
}
