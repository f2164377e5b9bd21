import { z } from 'zod'
import { checkEventData, currentVersion, isEventType } from '../events/catalogue.ts'
import { type EventMetadata, eventMetadata } from '../events/envelope.ts'
import { upcast } from '../events/upcast.ts'
import type { RecordedEvent } from './port.ts'
import { faultOf, hasEnvelope } from './stored-event.ts'

/** Converts the bytes of any event in the log to a readable form. Never throws. Pure. */

type Known = {
  readonly kind: 'known'
  /** The version in which the event was written. */
  readonly version: number
  readonly newest: number
  /** The data, upcast to the newest version. */
  readonly data: unknown
}
type Unread = {
  /**
   * `unknown`: this release does not support the type or version. `foreign`: other software wrote the event. `faulty`: the event does
   * not match its schema.
   */
  readonly kind: 'unknown' | 'foreign' | 'faulty'
  readonly why: string
}

type EventReading = {
  readonly metadata: EventMetadata | null
  readonly reading: Known | Unread
}

/** Reads an event with the schema of its version, and upcasts it to the newest version. Never throws. */
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
      ? { kind: 'faulty', why: 'its metadata is not valid' }
      : {
          kind: 'foreign',
          why: 'its metadata is not in the format of this service, so other software wrote it',
        }
  if (!isEventType(type)) return { kind: 'unknown', why: 'its type is unknown to this release' }
  const [version, newest] = [metadata.schema_version, currentVersion(type)]
  if (version > newest)
    return {
      kind: 'unknown',
      why: `it has version ${version}, but this release supports only versions up to ${newest}`,
    }
  const parsed = parsedOf(recorded.data)
  if (parsed === null) return { kind: 'faulty', why: 'its data is not JSON' }
  try {
    checkEventData(type, version, parsed.value)
    return { kind: 'known', version, newest, data: upcast(type, version, parsed.value).data }
  } catch (error) {
    const why = error instanceof z.ZodError ? faultOf(error, parsed.value) : String(error)
    return { kind: 'faulty', why: `its data does not match version ${version} of its type: ${why}` }
  }
}

const parsedOf = (text: string): { readonly value: unknown } | null => {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return null
  }
}
