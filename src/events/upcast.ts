import { currentVersion, type DomainEvent, type EventType, isEventType } from './catalogue.ts'

/** Converts data from one version to the next. Must accept every event of that version that was ever written. */
export type Upcast = (data: unknown) => unknown

/** `upcasts[type][n - 1]` converts version n to n + 1. A type without an entry has only one version. */
const upcasts: Partial<Record<EventType, readonly Upcast[]>> = {
  LedgersReconciled: [(data) => ({ ...(data as object), signed: null })],
}

/** The event type is not in the catalogue, so a newer release or other software wrote the event. It must not be skipped silently. */
export class UnknownEventType extends Error {
  override name = 'UnknownEventType'
}

/**
 * Converts stored data to the newest version of its type. Throws `UnknownEventType` if this release does not have the
 * type or version.
 */
export const upcast = (type: string, version: number, data: unknown, steps = upcasts): DomainEvent => {
  if (!isEventType(type))
    throw new UnknownEventType(
      `event type ${type} is unknown to this release; a newer release or other software wrote it`,
    )
  const target = (steps[type]?.length ?? 0) + 1
  if (version === target && target === currentVersion(type)) return { type, data } as DomainEvent
  if (!(version >= 1 && version < target))
    throw new UnknownEventType(
      `${type} version ${version} is unknown to this release, which has versions up to ${target}`,
    )
  const path = steps[type] ?? []
  return { type, data: path.slice(version - 1).reduce((older, step) => step(older), data) } as DomainEvent
}
