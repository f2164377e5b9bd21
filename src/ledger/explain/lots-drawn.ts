import type pg from 'pg'
import { placesOfLots } from '../../../projections/ledger-index.ts'
import { rowsOf } from '../../concurrency/query.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import type { LotFill } from '../../events/credits.ts'
import { drawnStill, type GrantedLot, grantedLotOf } from '../granted-lot.ts'
import { firstInLedger, ledgerEventAt } from '../read-ledger.ts'
import type { CallCost } from './call-costs.ts'

/** The revisions of the events that opened lots. Rows only save reading the whole ledger, so they can be missing or wrong. */
export type LotPlaces = (
  organizationId: string,
  grantIds: readonly string[],
) => Promise<readonly { readonly grant_id: string; readonly revision: string }[]>

export const lotPlacesIn =
  (pool: Pick<pg.Pool, 'query'>): LotPlaces =>
  (organizationId, grantIds) =>
    rowsOf(pool, placesOfLots(organizationId, grantIds))

type Sources = { readonly eventLog: EventLog; readonly lotPlaces: LotPlaces }

/** The lots that paid for a call, and the amount that each lot can get back. The last drawn lot comes first. */
export const lotsDrawn = async (
  sources: Sources,
  organizationId: string,
  { charge, adjustments }: LotsPaying,
): Promise<LotFill[]> => {
  const ownFills = adjustments.flatMap(({ rerateRun, fills }) => (rerateRun === null ? fills : []))
  const drawn = drawnStill(charge?.allocations ?? [], ownFills)
  const lots = await grantedLots(
    sources,
    organizationId,
    drawn.map(({ grant_id }) => grant_id),
  )
  return drawn.flatMap(({ grant_id, amount }) => {
    const lot = lots.get(grant_id)
    if (lot === undefined) return []
    const { priority, expires_at, revision, granted } = lot
    return { grant_id, amount, priority, expires_at, revision, granted }
  })
}

/** A charge and its corrections, as far as they concern lots. */
export type LotsPaying = {
  readonly charge: Pick<NonNullable<CallCost['charge']>, 'allocations'> | null
  readonly adjustments: readonly Pick<CallCost['adjustments'][number], 'rerateRun' | 'fills'>[]
}

/** Lots by id, as described by the events that opened them. If a place is missing or wrong, the ledger is read from its start. */
const grantedLots = async (
  { eventLog, lotPlaces }: Sources,
  organizationId: string,
  grantIds: readonly string[],
): Promise<Map<string, GrantedLot>> => {
  const lots = new Map<string, GrantedLot>()
  if (grantIds.length === 0) return lots
  for (const { grant_id, revision } of await lotPlaces(organizationId, grantIds)) {
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
export const openedBy = (recorded: RecordedEvent | null, grantId: string): GrantedLot | null => {
  if (recorded === null || !recorded.data.includes(grantId)) return null
  const { type, data } = decodeEvent(recorded)
  const opened = grantedLotOf({ type, data } as LedgerEvent, recorded.revision)
  return opened?.grant_id === grantId ? opened : null
}
