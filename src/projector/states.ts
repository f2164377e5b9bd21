import type pg from 'pg'
import type { StatefulProjection, TableName } from '../../projections/projection.ts'
import { recompute } from '../event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { decodeBatch } from './project.ts'

const pageMax = 1_000

export type LoadOptions = {
  readonly table: TableName
  readonly eventLog: Pick<EventLog, 'read'>
  readonly seal: (text: string) => string
  /** The event after which each stream is wanted: its next one. */
  readonly first: ReadonlyMap<string, RecordedEvent>
}

/**
 * What streams had come to before an event: from the rows, where their seal is the projector's and the event's own digest
 * follows from theirs; else folded from the stream's start. An Error for a stream that breaks its rules before the event.
 * Throws where the log or the database cannot be read.
 */
export const loadStates = async (
  client: pg.ClientBase,
  projection: StatefulProjection,
  { table, eventLog, seal, first }: LoadOptions,
): Promise<Map<string, unknown>> => {
  const { states } = projection
  const loaded = new Map<string, unknown>()
  const { text, values } = states.rows([...first.keys()], table)
  const { rows } = await client.query(text, [...values])
  for (const row of rows) {
    const opened = states.open(row, seal)
    const next = opened === null ? undefined : first.get(opened.stream)
    if (opened === null || next === undefined || opened.revision !== next.revision - 1) continue
    const { carried, computed } = recompute(next, {
      stream: next.stream,
      revision: next.revision,
      previous: opened.digest,
    })
    if (carried === computed) loaded.set(opened.stream, opened.state)
  }
  for (const [stream, next] of first)
    if (!loaded.has(stream)) loaded.set(stream, await foldStream(eventLog, projection, next))
  return loaded
}

const foldStream = async (
  eventLog: Pick<EventLog, 'read'>,
  { states }: StatefulProjection,
  { stream, revision }: RecordedEvent,
): Promise<unknown> => {
  const state = states.initial(stream)
  for (let from = 0; from < revision; from += pageMax) {
    const page = await eventLog.read(stream, { from, max: Math.min(pageMax, revision - from) })
    const { events, unreadable } = decodeBatch(page)
    const unread = unreadable[0]
    for (const event of events) {
      if (unread !== undefined && unread.event.revision < event.revision) break
      try {
        states.evolve(state, event)
      } catch (error) {
        return new Error(
          `revision ${event.revision}: ${error instanceof Error ? error.message : String(error)}`,
        )
      }
    }
    if (unread !== undefined) return new Error(`revision ${unread.event.revision}: ${unread.error}`)
    if (page.length === 0) return new Error(`the stream ends before revision ${revision}`)
  }
  return state
}
