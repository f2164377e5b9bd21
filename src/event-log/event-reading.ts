import { z } from 'zod'
import { checkEventData, currentVersion, isEventType } from '../events/catalogue.ts'
import { type EventMetadata, eventMetadata } from '../events/envelope.ts'
import { upcast } from '../events/upcast.ts'
import type { RecordedEvent } from './port.ts'
import { faultOf, hasEnvelope } from './stored-event.ts'

/** A readable form of an event's bytes. Works for any bytes the log holds, without failing. Pure. */

type Known = {
  readonly kind: 'known'
  /** The version it was written in, and the newest one of its type. */
  readonly version: number
  readonly newest: number
  /** In today's vocabulary. */
  readonly data: unknown
}
type Unread = {
  /** `unknown`: of a type or version this release does not know. `foreign`: of other software. `faulty`: does not match its type's schema. */
  readonly kind: 'unknown' | 'foreign' | 'faulty'
  readonly why: string
}

export type EventReading = {
  /** Null if the envelope is not ours, or a part of it is invalid. */
  readonly metadata: EventMetadata | null
  readonly reading: Known | Unread
}

/** Reads an event by the catalogue: the schema of the version it was written in, then every upcast up to today's. Never throws. */
export const readingOf = (recorded: RecordedEvent): EventReading => {
  const metadata = metadataOf(recorded)
  return { metadata, reading: dataOf(recorded, metadata) }
}

const metadataOf = ({ metadata }: RecordedEvent): EventMetadata | null => {
  const parsed = parsedOf(metadata)
  const checked = parsed === null ? null : eventMetadata.safeParse(parsed.value)
  return checked?.success === true ? checked.data : null
}

const dataOf = (recorded: RecordedEvent, metadata: EventMetadata | null): Known | Unread => {
  const { type } = recorded
  if (metadata === null)
    return hasEnvelope(recorded)
      ? { kind: 'faulty', why: 'its metadata are not as those of an event have to be' }
      : { kind: 'foreign', why: 'it has no envelope of this service: other software wrote it' }
  if (!isEventType(type)) return { kind: 'unknown', why: `its type is not in the catalogue of this release` }
  const [version, newest] = [metadata.schema_version, currentVersion(type)]
  if (version > newest)
    return {
      kind: 'unknown',
      why: `it is of version ${version}; the newest known to this release is ${newest}`,
    }
  const parsed = parsedOf(recorded.data)
  if (parsed === null) return { kind: 'faulty', why: 'its data are no JSON' }
  try {
    checkEventData(type, version, parsed.value)
    return { kind: 'known', version, newest, data: upcast(type, version, parsed.value).data }
  } catch (error) {
    const why = error instanceof z.ZodError ? faultOf(error, parsed.value) : String(error)
    return { kind: 'faulty', why: `its data do not fit version ${version} of its type: ${why}` }
  }
}

const parsedOf = (text: string): { readonly value: unknown } | null => {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return null
  }
}
