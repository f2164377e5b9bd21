import type { ProjectedEvent, Projection } from '../../projections/projection.ts'
import { digestAfter } from '../event-log/hash-chain.ts'
import { decodeLedgerEvent } from '../event-log/ledger-event.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import { decodeEvent, whyUnreadable } from '../event-log/stored-event.ts'
import { ledgerStream } from '../events/streams.ts'

const ledgerPrefix = ledgerStream('')

/** A batch of recorded events, split into those that could be decoded and those that could not. */
export type Decoded = {
  readonly recorded: readonly RecordedEvent[]
  readonly events: readonly ProjectedEvent[]
  readonly unreadable: readonly { readonly event: RecordedEvent; readonly error: string }[]
}

/** Decodes and upcasts a batch. Never throws: unreadable events are returned separately. */
export const decodeBatch = (recorded: readonly RecordedEvent[]): Decoded => {
  const events: ProjectedEvent[] = []
  const unreadable: { event: RecordedEvent; error: string }[] = []
  for (const event of recorded) {
    const { id, position, stream, revision, recordedAtMs } = event
    try {
      // Processes continue from the rows of ledgers, so rows must not include an event that a process would refuse.
      const {
        type,
        data,
        metadata: written,
      } = event.stream.startsWith(ledgerPrefix) ? decodeLedgerEvent(event) : decodeEvent(event)
      // An event that other software wrote can lack a digest. Rows then contain the digest to which the next event is chained.
      const digest = digestAfter(event)
      const metadata = written.digest === digest ? written : { ...written, digest }
      const projected = { type, data, id, position, stream, revision, recordedAtMs, metadata }
      // `upcast` has checked that the data matches the type.
      events.push(projected as ProjectedEvent)
    } catch (error) {
      unreadable.push({ event, error: whyUnreadable(event, error) })
    }
  }
  return { recorded, events, unreadable }
}

/** Returns the part of a batch after the position `after`, up to and including the position `to`. */
export const within = (decoded: Decoded, { after, to }: { after: bigint; to: bigint }): Decoded => {
  const first = decoded.recorded[0]?.position ?? to
  const last = decoded.recorded.at(-1)?.position ?? to
  if (first > after && last <= to) return decoded
  const inside = ({ position }: { readonly position: bigint }): boolean => position > after && position <= to
  return {
    recorded: decoded.recorded.filter(inside),
    events: decoded.events.filter(inside),
    unreadable: decoded.unreadable.filter(({ event }) => inside(event)),
  }
}

export const concerns = (projection: Projection, stream: string): boolean =>
  projection.prefixes.length === 0 || projection.prefixes.some((prefix) => stream.startsWith(prefix))
