import { movementOf } from '../../../projections/ledger-index.ts'
import type { EventLog } from '../../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { ledgerStream } from '../../events/streams.ts'
import { notePrice, type OwnPrices, pricesAt } from '../prices/own-prices.ts'
import { type CallEvidence, callsIn, lotIdOf, type RecordedCall } from './call-evidence.ts'

const pageMax = 1_000

/**
 * Like `findCall`, but reads the whole ledger and no read models. Returns null if the ledger does not contain an individual record of
 * the call. Throws `StreamMissing` if the ledger does not exist.
 */
export const findCallInAll = async (
  eventLog: Pick<EventLog, 'read'>,
  { organizationId, requestId }: { organizationId: string; requestId: string },
  onProgress: (events: number) => void = () => undefined,
): Promise<CallEvidence | null> => {
  const stream = ledgerStream(organizationId)
  const calls: RecordedCall[] = []
  const corrections: DecodedEvent[] = []
  const replays: DecodedEvent[] = []
  const lots = new Map<string, DecodedEvent>()
  const ownPrices: OwnPrices = new Map()
  let balance = 0n
  let balanceBefore = 0n
  let head: CallEvidence['head'] | undefined
  for (let from = 0; ; ) {
    // One more event is read than processed, so that a call and its charge are always on the same page.
    const page = await eventLog.read(stream, { from, max: pageMax + 1 })
    const events = page.slice(0, pageMax)
    for (const [i, recorded] of events.entries()) {
      const event = decodeEvent(recorded)
      const [found] = callsIn(page.slice(i, i + 2), requestId).filter(
        ({ call }) => call.recorded === recorded,
      )
      if (found !== undefined) {
        if (calls.length === 0) balanceBefore = balance
        calls.push(found)
      } else if (event.metadata.repeats === requestId) replays.push(event)
      const opened = lotIdOf(event)
      if (opened !== null && calls.length === 0) lots.set(opened, event)
      if (event.type === 'CreditAdjusted' && calls.length > 0) corrections.push(event)
      if (calls.length === 0) notePrice(ownPrices, event)
      balance += movementOf(event)
    }
    head = events.at(-1) ?? head
    from += events.length
    onProgress(from)
    if (page.length <= pageMax) break
  }
  const [first, ...others] = calls
  if (first === undefined || head === undefined) return null
  return {
    organizationId,
    calls: [first, ...others],
    balanceBefore,
    lots,
    overrides: pricesAt(ownPrices, Date.parse(first.call.metadata.effective_at)),
    corrections,
    replays,
    head,
  }
}
