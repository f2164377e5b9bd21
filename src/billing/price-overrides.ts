import type { MicroCredits } from './money.ts'

/** An organization's own price of a SKU from an instant on; null returns to the price book. `revision` is its event's. */
export type PriceOverrideEntry = {
  readonly revision: number
  readonly amount: MicroCredits | null
  readonly fromMs: number
}

/** Overrides of one SKU, oldest first, with one more. Among those from the same instant, the last one set counts. */
export const withOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  entry: Entry,
): Entry[] => [...(overrides ?? []), entry].sort((a, b) => a.fromMs - b.fromMs)

/** Without the override that the event at a revision set. */
export const withoutOverride = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  revision: number,
): Entry[] => (overrides ?? []).filter((entry) => entry.revision !== revision)

/** The override in force at an instant; undefined: the price book's price. */
export const overrideAt = <Entry extends PriceOverrideEntry>(
  overrides: readonly Entry[] | undefined,
  atMs: number,
): Entry | undefined => {
  const last = overrides?.findLast(({ fromMs }) => fromMs <= atMs)
  return last === undefined || last.amount === null ? undefined : last
}
