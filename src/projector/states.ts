import { LRUCache } from 'lru-cache'
import type pg from 'pg'
import type { ProjectedEvent, StatefulProjection } from '../../projections/projection.ts'
import { recompute } from '../event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { concerns, type Decoded, decodeBatch } from './batch.ts'
import type { FolderOptions, Making } from './fold.ts'
import { messageOf } from './isolate.ts'

/** The state of a stream. `broken`: an event before the batch could not be applied, for the reason in `error`. */
type Known =
  | { readonly kind: 'state'; readonly state: unknown }
  | { readonly kind: 'broken'; readonly error: Error }

const statesMax = 20_000
const pageMax = 1_000

/**
 * Folds events into the states of streams. Recently used states are kept in memory. Other states that a batch needs are loaded before
 * it is folded.
 */
export const stateful = (projection: StatefulProjection, options: FolderOptions): Making => {
  const { states } = projection
  const known = new LRUCache<string, Known>({ max: statesMax })

  /** The streams in a batch whose state is not in memory, each with its first event in the batch. */
  const missing = ({ recorded }: Decoded): Map<string, RecordedEvent> => {
    const first = new Map<string, RecordedEvent>()
    const seen = new Set<string>()
    for (const event of recorded) {
      if (seen.has(event.stream)) continue
      seen.add(event.stream)
      if (event.revision > 0 && concerns(projection, event.stream) && known.peek(event.stream) === undefined)
        first.set(event.stream, event)
    }
    return first
  }

  const stateOf = (stream: string): unknown => {
    const found = known.get(stream)
    if (found === undefined) return states.initial(stream)
    if (found.kind === 'broken') throw found.error
    return states.copy(found.state)
  }

  return {
    needsRows: (decoded) => missing(decoded).size > 0,
    prepare: async (client, decoded) => {
      const first = missing(decoded)
      if (first.size === 0) return
      for (const [stream, loaded] of await loadStates(client, projection, { ...options, first }))
        known.set(stream, loaded)
    },
    fold: (events) => {
      const changed = new Map<string, unknown>()
      for (const event of events) {
        const state = changed.get(event.stream) ?? stateOf(event.stream)
        states.evolve(state, event)
        changed.set(event.stream, state)
      }
      const before = [...changed.keys()].map((stream) => [stream, known.peek(stream)] as const)
      const changes = states.write([...changed.values()], options.seal)
      for (const [stream, state] of changed) {
        states.written(state)
        known.set(stream, { kind: 'state', state })
      }
      return {
        changes,
        undo: () => {
          for (const [stream, kept] of before)
            if (kept === undefined) known.delete(stream)
            else known.set(stream, kept)
        },
      }
    },
    tried: () => {
      const changed = new Map<string, unknown>()
      return (event: ProjectedEvent) => {
        const kept = changed.get(event.stream)
        // Events are folded into a copy, because an event that throws can already have changed a part of the state.
        const state = kept === undefined ? stateOf(event.stream) : states.copy(kept)
        states.evolve(state, event)
        changed.set(event.stream, state)
      }
    },
  }
}

type LoadOptions = FolderOptions & {
  /** The first event of each stream in the batch. The state just before this event is loaded. */
  readonly first: ReadonlyMap<string, RecordedEvent>
}

/**
 * Loads the states of streams just before an event. A state is read from its rows if they have a valid seal and the event's digest
 * follows from the digest in the rows. Otherwise, the stream is folded from its start. Throws if the log or the database cannot be read.
 */
const loadStates = async (
  client: pg.ClientBase,
  projection: StatefulProjection,
  { table, eventLog, seal, first }: LoadOptions,
): Promise<Map<string, Known>> => {
  const { states } = projection
  const loaded = new Map<string, Known>()
  const { text, values } = states.rows([...first.keys()], table)
  const { rows } = await client.query(text, [...values])
  for (const row of rows) {
    const opened = states.open(row, seal)
    const next = opened === null ? undefined : first.get(opened.stream)
    if (opened === null || next === undefined || opened.revision !== next.revision - 1) continue
    const { stream, revision } = next
    const { carried, computed } = recompute(next, { stream, revision, previous: opened.digest })
    if (carried === computed) loaded.set(stream, { kind: 'state', state: opened.state })
  }
  for (const [stream, next] of first)
    if (!loaded.has(stream)) loaded.set(stream, await foldStream(eventLog, projection, next))
  return loaded
}

const foldStream = async (
  eventLog: Pick<EventLog, 'read'>,
  { states }: StatefulProjection,
  { stream, revision }: RecordedEvent,
): Promise<Known> => {
  const broken = (at: number, why: string): Known => ({
    kind: 'broken',
    error: new Error(`revision ${at}: ${why}`),
  })
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
        return broken(event.revision, messageOf(error))
      }
    }
    if (unread !== undefined) return broken(unread.event.revision, unread.error)
    if (page.length === 0)
      return { kind: 'broken', error: new Error(`the stream ends before revision ${revision}`) }
  }
  return { kind: 'state', state }
}
