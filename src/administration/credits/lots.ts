import { placesOfLots } from '../../../projections/ledger-index.ts'
import { formatCredits } from '../../billing/money.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { type GrantedLot, grantedLotOf } from '../../ledger/granted-lot.ts'
import { firstInLedger, ledgerEventAt } from '../../ledger/read-ledger.ts'
import { registeredAccount } from './credits.ts'

type Sources = Pick<Foundation, 'eventLog' | 'pool'>

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

/**
 * Lots by id, as described by the events that opened them. Rows only locate these events; if a row is missing, the ledger is read
 * from its start.
 */
export const grantedLots = async (
  { eventLog, pool }: Sources,
  organizationId: string,
  grantIds: readonly string[],
): Promise<Map<string, GrantedLot>> => {
  const places = placesOfLots(organizationId, grantIds)
  const { rows } = await pool.query<{ grant_id: string; revision: string }>(places.text, [...places.values])
  const lots = new Map<string, GrantedLot>()
  for (const { grant_id, revision } of rows) {
    const opened = openedBy(await ledgerEventAt(eventLog, organizationId, Number(revision)), grant_id)
    if (opened !== null) lots.set(grant_id, opened)
  }
  for (const grantId of grantIds) {
    if (lots.has(grantId)) continue
    const fits = (recorded: RecordedEvent): boolean => openedBy(recorded, grantId) !== null
    const opened = openedBy(await firstInLedger(eventLog, organizationId, { fits }), grantId)
    if (opened === null) throw new Error(`no lot ${grantId} was opened in the ledger of ${organizationId}`)
    lots.set(grantId, opened)
  }
  return lots
}

/** The lot with this id; null if the event does not open it. */
const openedBy = (recorded: RecordedEvent | null, grantId: string): GrantedLot | null => {
  if (recorded === null || !recorded.data.includes(grantId)) return null
  const { type, data } = decodeEvent(recorded)
  const opened = grantedLotOf({ type, data } as LedgerEvent, recorded.revision)
  return opened?.grant_id === grantId ? opened : null
}
