import { ulid } from 'ulid'
import { appendNext } from '../event-log/append-next.ts'
import type { EventLog } from '../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import type { DataImported } from '../events/data.ts'
import { operatorStream } from '../events/streams.ts'

/** A list, file or table that answers are based on. Contains neither personal data nor secrets. */
export type DataSource = {
  readonly name: string
  /** The origin of the data, as text for a page. */
  readonly from: string
  /** Null if the data have no version. */
  readonly version: string | null
  /** The size, as text for a page, such as `112,345 domains`. */
  readonly holds: string
  /** The date of the data; null if unknown. */
  readonly asOf: Date | null
  /** The age above which "doctor" and an alert report the data; null for no limit. */
  readonly ageDaysMax: number | null
  /** The name of the source in import events; null if imports are not recorded. */
  readonly imported: DataImported['data'] | null
  /** `host`: files on the machine that shows the data; `installation`: shared by all processes. */
  readonly place: 'host' | 'installation'
  /** The action to take if the data are old or missing; null for none. */
  readonly remedy: string | null
}

/** The data sources of all capabilities. `faults` describe the sources that cannot be read. */
export type FoundData = { readonly sources: readonly DataSource[]; readonly faults: readonly string[] }

/** Records an import of data. Throws the errors of `appendNext`. */
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

/** Returns the age in whole days. */
export const ageDaysOf = (asOf: Date, nowMs: number): number =>
  Math.max(0, Math.floor((nowMs - asOf.getTime()) / dayMs))

export const isTooOld = ({ asOf, ageDaysMax }: DataSource, nowMs: number): boolean =>
  asOf !== null && ageDaysMax !== null && ageDaysOf(asOf, nowMs) > ageDaysMax
