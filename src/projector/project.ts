import type { ProjectedEvent, Projection, Statement, TableName } from '../../projections/projection.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { upcast } from '../events/upcast.ts'

/** Recorded events on their way into projections: those that can be read, and those that cannot. */
export type Decoded = {
  readonly events: readonly ProjectedEvent[]
  readonly unreadable: readonly { readonly event: RecordedEvent; readonly error: string }[]
}

/** Parses and upcasts a batch. Never throws: what cannot be read is told apart. */
export const decodeBatch = (recorded: readonly RecordedEvent[]): Decoded => {
  const data = parseTogether(recorded.map((event) => event.data))
  const metadata = parseTogether(recorded.map((event) => event.metadata))
  const events: ProjectedEvent[] = []
  const unreadable: { event: RecordedEvent; error: string }[] = []
  for (let i = 0; i < recorded.length; i++) {
    const event = recorded[i]
    if (event === undefined) break
    try {
      const envelope = (metadata?.[i] ?? JSON.parse(event.metadata)) as EventMetadata
      const known = upcast(event.type, envelope.schema_version, data?.[i] ?? JSON.parse(event.data))
      events.push({
        type: known.type,
        data: known.data,
        id: event.id,
        position: event.position,
        stream: event.stream,
        revision: event.revision,
        recordedAtMs: event.recordedAtMs,
        metadata: envelope,
      } as ProjectedEvent)
    } catch (error) {
      unreadable.push({ event, error: error instanceof Error ? error.message : String(error) })
    }
  }
  return { events, unreadable }
}

/** One long JSON text parses much faster than many short ones. Undefined when one of them is broken. */
const parseTogether = (texts: readonly string[]): unknown[] | undefined => {
  try {
    return JSON.parse(`[${texts.join(',')}]`) as unknown[]
  } catch {
    return undefined
  }
}

/** What of a batch lies after one position, up to and including another. */
export const within = (decoded: Decoded, { after, to }: { after: bigint; to: bigint }): Decoded => {
  const first = decoded.events[0]?.position ?? to
  const last = decoded.events.at(-1)?.position ?? to
  if (decoded.unreadable.length === 0 && first > after && last <= to) return decoded
  return {
    events: decoded.events.filter(({ position }) => position > after && position <= to),
    unreadable: decoded.unreadable.filter(({ event }) => event.position > after && event.position <= to),
  }
}

export const concerns = (projection: Projection, stream: string): boolean =>
  projection.prefixes.length === 0 || projection.prefixes.some((prefix) => stream.startsWith(prefix))

/** What a projection makes of a batch: its statements, or the first event it cannot fold and what comes before it. */
export type Folded = {
  readonly statements: readonly Statement[]
  readonly poison: readonly { readonly position: bigint; readonly stream: string; readonly error: string }[]
}

/**
 * Folds what concerns the projection. One of money folds up to the first event it cannot take and reports it; any
 * other leaves such events out and reports them all.
 */
export const foldBatch = (
  projection: Projection,
  { events, unreadable }: Decoded,
  table: TableName,
): Folded => {
  const poison = unreadable
    .filter(({ event }) => concerns(projection, event.stream))
    .map(({ event, error }) => ({ position: event.position, stream: event.stream, error }))
  const own = events.filter((event) => concerns(projection, event.stream))
  if (poison.length === 0) {
    try {
      return { statements: projection.fold(own, table), poison }
    } catch {
      // Found one by one below.
    }
  }
  const bad = new Map(poison.map((one) => [one.position, one]))
  for (const event of own) {
    try {
      projection.fold([event], table)
    } catch (error) {
      bad.set(event.position, {
        position: event.position,
        stream: event.stream,
        error: error instanceof Error ? error.message : String(error),
      })
    }
  }
  const all = [...bad.values()].sort((a, b) => (a.position < b.position ? -1 : 1))
  const first = all[0]
  if (projection.money && first !== undefined)
    return {
      statements: projection.fold(
        own.filter(({ position }) => position < first.position),
        table,
      ),
      poison: [first],
    }
  return {
    statements: projection.fold(
      own.filter(({ position }) => !bad.has(position)),
      table,
    ),
    poison: all,
  }
}
