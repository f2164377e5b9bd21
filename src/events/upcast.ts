import { currentVersion, type DomainEvent, type EventType, isEventType } from './catalogue.ts'

/** Turns data of one version into the next version's. Pure and total over every event ever written. */
export type Upcast = (data: unknown) => unknown

const also =
  (members: Readonly<Record<string, unknown>>): Upcast =>
  (data) => ({ ...(data as object), ...members })

/** What the members that were there say of an adjustment's kind. */
const withKind: Upcast = (data) => {
  const { adjusts, rerate_run } = data as { adjusts: string | null; rerate_run: string | null }
  const kind = rerate_run !== null ? 'rerate' : adjusts !== null ? 'reversal' : 'adjustment'
  return { ...(data as object), kind, fills: [] }
}

/** `upcasts[type][n - 1]` leads from version n to n + 1. A type that is not here has one version so far. */
const upcasts: Partial<Record<EventType, readonly Upcast[]>> = {
  CreditGranted: [also({ reference: null })],
  PriceOverrideSet: [also({ override_id: null, reason: null })],
  CreditCharged: [also({ price_book_digest: null })],
  CreditAdjusted: [withKind, also({ reference: null, charged_at: null })],
  // It did not say where the next month begins: its events are looked for from the first one on.
  MonthClosed: [also({ next: { revision: 0, prices: [] } })],
  ReferenceReserved: [also({ refunds: null })],
  UserSignedIn: [also({ way: 'password' })],
  SignInsRefused: [also({ way: 'password' })],
  LogVerified: [also({ after: 0, through: null })],
  PriceBookPublished: [also({ proposal: null, digest: null })],
  RerateLedgerPlanned: [also({})],
}

/** The event type is not in the catalogue: written by a newer release, or not ours. Never skipped silently. */
export class UnknownEventType extends Error {
  override name = 'UnknownEventType'
}

/**
 * Brings stored data to today's version of its type, one version at a time.
 * Throws `UnknownEventType` for a type or version this release does not know.
 */
export const upcast = (type: string, version: number, data: unknown, steps = upcasts): DomainEvent => {
  if (!isEventType(type))
    throw new UnknownEventType(`event type ${type} is not in the catalogue of this release`)
  const target = (steps[type]?.length ?? 0) + 1
  if (version === target && target === currentVersion(type)) return { type, data } as DomainEvent
  if (!(version >= 1 && version < target))
    throw new UnknownEventType(`${type} version ${version} is not known to this release (newest: ${target})`)
  const path = steps[type] ?? []
  return { type, data: path.slice(version - 1).reduce((older, step) => step(older), data) } as DomainEvent
}
