import { currentVersion, type DomainEvent, type EventType, isEventType } from './catalogue.ts'

/** Turns data of one version into the next version's. Pure and total over every event ever written. */
export type Upcast = (data: unknown) => unknown

/** `upcasts[type][n - 1]` converts version n to n + 1. A type that is not here has only one version so far. */
const upcasts: Partial<Record<EventType, readonly Upcast[]>> = {}

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
