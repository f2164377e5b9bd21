import type { DecodedEvent } from '../../event-log/stored-event.ts'

/** The events that set an organization's own prices, by SKU and in ledger order, without withdrawn prices. */
export type OwnPrices = Map<string, DecodedEvent[]>

/** Applies an event to the prices. Must be called in ledger order. */
export const notePrice = (ownPrices: OwnPrices, event: DecodedEvent): void => {
  if (event.type === 'PriceOverrideSet')
    ownPrices.set(event.data.sku, [...(ownPrices.get(event.data.sku) ?? []), event])
  if (event.type !== 'PriceOverrideWithdrawn') return
  const { sku, override_revision } = event.data
  const kept = (ownPrices.get(sku) ?? []).filter(({ recorded }) => recorded.revision !== override_revision)
  ownPrices.set(sku, kept)
}

/**
 * The price in force for each SKU: the price that took effect last. If several took effect at the same time, it is the one that was set
 * last.
 */
export const pricesAt = (ownPrices: OwnPrices, atMs: number): Map<string, DecodedEvent> => {
  const inForce = new Map<string, DecodedEvent>()
  for (const [sku, events] of ownPrices) {
    const [last] = events
      .flatMap((event) => (event.type === 'PriceOverrideSet' ? [event] : []))
      .filter(({ data }) => Date.parse(data.effective_from) <= atMs)
      .toSorted(
        (a, b) =>
          Date.parse(b.data.effective_from) - Date.parse(a.data.effective_from) ||
          b.recorded.revision - a.recorded.revision,
      )
    if (last !== undefined) inForce.set(sku, last)
  }
  return inForce
}
