import { currentVersion, type DomainEvent, type EventType, isEventType } from './catalogue.ts'

/** Converts the data of one version to the next version. Must accept every event that was ever written. */
export type Upcast = (data: unknown) => unknown

/** `upcasts[type][n - 1]` converts version n to n + 1. A type without an entry has only one version. */
const upcasts: Partial<Record<EventType, readonly Upcast[]>> = {
  LedgersReconciled: [(data) => ({ ...(data as object), signed: null })],
}

/** The event type is not in the catalogue. A newer release or other software wrote it, so it must not be skipped silently. */
export class UnknownEventType extends Error {
  override name = 'UnknownEventType'
}

/**
 * Converts stored data to the newest version of its type. Throws `UnknownEventType` for a type or version that this
 * release does not have.
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
