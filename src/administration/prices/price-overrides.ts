import type { Logger } from 'pino'
import { allOverridden } from '../../../projections/accounts.ts'
import { formatCredits, type MicroCredits } from '../../billing/money.ts'
import { standingBooks } from '../../billing/prices.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { readPrices } from '../../ledger/prices/price-stream.ts'
import { ledgerEventAt } from '../../ledger/read-ledger.ts'
import { registeredAccount, uniqueCommandKey } from '../credits/credits.ts'
import { InputFault } from '../input.ts'
import { catchUp } from '../projections/catch-up.ts'

/** Organizations' own prices. The ledger of the organization is the authority on them. */

type PriceOverride = {
  readonly organizationId: string
  readonly sku: string
  /** The amount; null for the price in the price book. */
  readonly amount: MicroCredits | null
  readonly effectiveFrom: string
  readonly reason: string
  readonly actor: string
}

/** The time by which an instant can already have passed, because it is chosen before the request is sent. */
const toleranceMs = 1_000

/**
 * Gives an organization its own price for a SKU. Throws `InputFault` if no price book contains the SKU, or if the instant has
 * passed.
 */
export const setPriceOverride = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  { organizationId, ...override }: PriceOverride,
): Promise<{ overrideId: string }> => {
  if (Date.parse(override.effectiveFrom) < Date.now() - toleranceMs)
    throw new InputFault(
      'effective-from',
      `${override.effectiveFrom} has passed, and prices cannot be changed for the past; to change past charges, use "rerate plan"`,
    )
  const { prices } = await readPrices(eventLog)
  const skus = new Set(standingBooks(prices).flatMap(({ rules }) => rules.map(({ sku }) => sku)))
  if (!skus.has(override.sku))
    throw new InputFault(
      'sku',
      `no price book has the SKU "${override.sku}"; the SKUs are ${[...skus].filter((sku) => sku !== null).join(', ')}`,
    )
  const { events } = await ledger.submit(organizationId, {
    key: uniqueCommandKey('price-override'),
    atMs: Date.now(),
    kind: 'override_price',
    ...override,
  })
  const [event] = events
  return { overrideId: (event?.type === 'PriceOverrideSet' && event.data.override_id) || '' }
}

/** The names of the members are those in JSON. */
export type StandingOverride = {
  readonly organization_id: string
  /** The id of the event that set the override. */
  readonly override_id: string
  readonly revision: number
  readonly sku: string
  readonly amount: string | null
  readonly effective_from: string
  /** Whether this override prices calls now. If false, a later override has replaced it, or its date is in the future. */
  readonly in_force: boolean
  readonly reason: string | null
  readonly set_by: string
  readonly set_at: string
}

/** An organization's overrides that have not been withdrawn, by SKU and date. Throws `CommandRefused` if it is not registered. */
export const priceOverrides = async (
  { eventLog, ledger }: Pick<Foundation, 'eventLog' | 'ledger'>,
  organizationId: string,
): Promise<StandingOverride[]> => {
  const account = await registeredAccount(ledger, organizationId)
  const nowMs = Date.now()
  const found: StandingOverride[] = []
  for (const overrides of account.overrides.values()) {
    const current = overrides.findLast(({ fromMs }) => fromMs <= nowMs)
    for (const override of overrides) {
      const recorded = await ledgerEventAt(eventLog, organizationId, override.revision)
      const event = recorded === null ? null : decodeEvent(recorded)
      if (event?.type !== 'PriceOverrideSet') continue
      found.push({
        revision: override.revision,
        organization_id: organizationId,
        sku: event.data.sku,
        amount: override.amount === null ? null : formatCredits(override.amount),
        effective_from: event.data.effective_from,
        in_force: override === current,
        override_id: event.recorded.id,
        set_by: event.metadata.actor,
        set_at: event.metadata.effective_at,
        reason: event.data.reason,
      })
    }
  }
  return found.toSorted(
    (a, b) => a.sku.localeCompare(b.sku) || a.effective_from.localeCompare(b.effective_from),
  )
}

/** The organizations that have or had their own prices, according to the event log at the time of the call. */
export const overriddenOrganizations = async (foundation: Foundation, logger: Logger): Promise<string[]> => {
  await catchUp(foundation, logger)
  const rows = await rowsOf(foundation.pool, allOverridden())
  return rows.map(({ organization_id }) => organization_id)
}

/** One override that has not been withdrawn. Throws `CommandRefused` if there is none with this id. */
export const priceOverride = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger'>,
  { organizationId, overrideId }: { organizationId: string; overrideId: string },
): Promise<StandingOverride> => {
  const found = (await priceOverrides(foundation, organizationId)).find(
    (one) => one.override_id === overrideId,
  )
  if (found === undefined)
    throw new CommandRefused(
      `${organizationId} has no active override ${overrideId}; see "price overrides ${organizationId}"`,
    )
  return found
}

/** Withdraws an override: from now on, calls are priced as if it had never been set. Earlier charges keep their price. */
export const withdrawPriceOverride = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger'>,
  {
    organizationId,
    overrideId,
    reason,
    actor,
  }: { organizationId: string; overrideId: string; reason: string; actor: string },
): Promise<StandingOverride> => {
  const override = await priceOverride(foundation, { organizationId, overrideId })
  const { sku, revision } = override
  await foundation.ledger.submit(organizationId, {
    key: uniqueCommandKey('price-override-withdrawn'),
    atMs: Date.now(),
    actor,
    kind: 'withdraw_override',
    overrideId,
    overrideRevision: revision,
    sku,
    reason,
  })
  return override
}
