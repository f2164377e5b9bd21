import { ulid } from 'ulid'
import { appendNext } from '../event-log/append-next.ts'
import type { EventLog } from '../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import type { DataImported } from '../events/data.ts'
import { operatorStream } from '../events/streams.ts'

/** A list, a file or a table that answers are based on, in its current state. No member holds a person's data or a secret. */
export type DataSource = {
  readonly name: string
  /** Where its data come from, for people. */
  readonly from: string
  /** Null where it has none. */
  readonly version: string | null
  /** Its size, for people: `112,345 domains`. */
  readonly holds: string
  /** The date of its data; null if it is not known. */
  readonly asOf: Date | null
  /** Older data are reported by "doctor" and by an alert; null: no bound. */
  readonly ageDaysMax: number | null
  /** The source whose imports are events; null: its imports are not recorded. */
  readonly imported: DataImported['data'] | null
  /** `host`: files of the machine that shows it; `installation`: the same for all processes. */
  readonly place: 'host' | 'installation'
  /** What to do when it is old or missing; null: nothing. */
  readonly remedy: string | null
}

/** The data sources of all capabilities. A source that cannot be read is reported as such, and hides no other. */
export type FoundData = { readonly sources: readonly DataSource[]; readonly faults: readonly string[] }

/** Records an import of data. Throws what `appendNext` throws. */
export const recordImport = async (
  eventLog: EventLog,
  data: DataImported,
  { actor }: { readonly actor: string },
): Promise<void> => {
  const id = eventIdOf(operatorStream, `DataImported/${ulid()}`, 0)
  const effectiveAt = new Date().toISOString()
  await appendNext(eventLog, operatorStream, [
    encodeEvent({ type: 'DataImported', data }, { id, actor, effectiveAt }),
  ])
}

const dayMs = 86_400_000

/** In whole days. */
export const ageDaysOf = (asOf: Date, nowMs: number): number =>
  Math.max(0, Math.floor((nowMs - asOf.getTime()) / dayMs))

export const isTooOld = ({ asOf, ageDaysMax }: DataSource, nowMs: number): boolean =>
  asOf !== null && ageDaysMax !== null && ageDaysOf(asOf, nowMs) > ageDaysMax
