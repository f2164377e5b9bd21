import { evolvePrices, evolveSoundPrices, noPrices, type Prices } from '../../billing/prices.ts'
import type { EventLog } from '../../event-log/port.ts'
import { readIfAny } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { priceBookStream } from '../../events/streams.ts'

const eventsMax = 100_000

type ReadPrices = { readonly prices: Prices; readonly revision: number }

/**
 * Reads the prices from their stream, and its last revision (−1 if the stream does not exist yet). Throws if an event cannot be read or is
 * incomplete, because the prices in force would then be unknown.
 */
export const readPrices = (eventLog: Pick<EventLog, 'read'>): Promise<ReadPrices> =>
  foldPrices(eventLog, (prices, event) => {
    try {
      return evolveSoundPrices(prices, event)
    } catch (cause) {
      throw new Error(
        `${priceBookStream} cannot be read: its event at revision ${event.recorded.revision} (${event.type}) is incomplete; run "event-log verify" to find out whether it was changed`,
        { cause },
      )
    }
  })

/** Like `readPrices`, but accepts every event that can be decoded. Used to find events that were changed. */
export const readPricesAsTheyAre = (eventLog: Pick<EventLog, 'read'>): Promise<ReadPrices> =>
  foldPrices(eventLog, evolvePrices)

const foldPrices = async (
  eventLog: Pick<EventLog, 'read'>,
  evolve: (prices: Prices, event: DecodedEvent) => Prices,
): Promise<ReadPrices> => {
  const events = await readIfAny(eventLog, priceBookStream, { max: eventsMax })
  return {
    prices: events.map(decodeEvent).reduce(evolve, noPrices),
    revision: events.at(-1)?.revision ?? -1,
  }
}
