import { LRUCache } from 'lru-cache'
import type pg from 'pg'
import type {
  ProjectedEvent,
  Projection,
  StatefulProjection,
  TableName,
} from '../../projections/projection.ts'
import type { Change } from '../../projections/rows.ts'
import type { EventLog } from '../event-log/port.ts'
import { concerns, type Decoded } from './project.ts'
import { loadStates } from './states.ts'

/** An event a projection cannot take. */
export type Poison = { readonly position: bigint; readonly stream: string; readonly error: string }

/** What a projection makes of a batch. */
export type Folded = {
  readonly changes: readonly Change[]
  /** In the order of the log. Of money at most one a stream: nothing after it is folded. */
  readonly poison: readonly Poison[]
  /** Takes the fold back: its changes were not written. Folds after it have to be taken back first. */
  undo(): void
}

/** One projection being folded into one set of tables. Batches come in the order of the log. */
export type Folder = {
  readonly projection: Projection
  readonly table: TableName
  /** Whether `prepare` would have to read rows: what is being written has to be there first. */
  needsRows(decoded: Decoded): boolean
  /** Loads what the streams of a batch have come to before it. */
  prepare(client: pg.ClientBase, decoded: Decoded): Promise<void>
  fold(decoded: Decoded): Folded
  /** Nothing more of the stream is folded. */
  halt(stream: string): void
}

export type FolderOptions = {
  readonly table: TableName
  readonly eventLog: Pick<EventLog, 'read'>
  readonly seal: (text: string) => string
  /** Streams of money that are halted already. */
  readonly halted?: Iterable<string>
}

const statesMax = 20_000

export const createFolder = (projection: Projection, options: FolderOptions): Folder => {
  const halted = new Set(options.halted)
  const making = 'states' in projection ? statefully(projection, options) : statelessly(projection)
  return {
    projection,
    table: options.table,
    needsRows: making.needsRows,
    prepare: making.prepare,
    halt: (stream) => halted.add(stream),
    fold: (decoded) => {
      const concerned = (stream: string): boolean => concerns(projection, stream) && !halted.has(stream)
      const own = decoded.events.filter(({ stream }) => concerned(stream))
      const unreadable = decoded.unreadable.filter(({ event }) => concerned(event.stream))
      if (unreadable.length === 0) {
        try {
          return { poison: [], ...making.fold(own) }
        } catch {
          // Found one by one below.
        }
      }
      const { good, poison } = separate(projection, { own, unreadable, ...making })
      const fold = making.fold(good)
      const stopped = projection.money ? poison.map(({ stream }) => stream) : []
      for (const stream of stopped) halted.add(stream)
      return {
        changes: fold.changes,
        poison,
        undo: () => {
          fold.undo()
          for (const stream of stopped) halted.delete(stream)
        },
      }
    },
  }
}

type Making = Pick<Folder, 'needsRows' | 'prepare'> & {
  /** Throws, and has changed nothing, where one of the events cannot be taken. */
  fold(events: readonly ProjectedEvent[]): Pick<Folded, 'changes' | 'undo'>
  /** The same, event by event, to find out which: throws where this one cannot be taken. */
  tried(): (event: ProjectedEvent) => void
}

/** Tells what can be folded from what cannot. */
const separate = (
  { money }: Projection,
  {
    own,
    unreadable,
    tried,
  }: {
    own: readonly ProjectedEvent[]
    unreadable: Decoded['unreadable']
    tried: Making['tried']
  },
): { good: ProjectedEvent[]; poison: Poison[] } => {
  const attempt = tried()
  const good: ProjectedEvent[] = []
  const poison = unreadable.map(({ event: { position, stream }, error }) => ({ position, stream, error }))
  for (const event of own) {
    const { position, stream } = event
    if (money && poison.some((one) => one.stream === stream && one.position < position)) continue
    try {
      attempt(event)
      good.push(event)
    } catch (error) {
      poison.push({ position, stream, error: messageOf(error) })
    }
  }
  poison.sort((a, b) => (a.position < b.position ? -1 : 1))
  const first = new Set<string>()
  return {
    good,
    poison: money ? poison.filter(({ stream }) => !first.has(stream) && first.add(stream)) : poison,
  }
}

const statelessly = ({ fold }: Extract<Projection, { fold: unknown }>): Making => ({
  needsRows: () => false,
  prepare: async () => undefined,
  fold: (events) => ({ changes: fold(events), undo: () => undefined }),
  tried: () => (event) => {
    fold([event])
  },
})

/** Folds onto states it keeps, newest used last; those it does not have are loaded before they are needed. */
const statefully = (projection: StatefulProjection, { table, eventLog, seal }: FolderOptions): Making => {
  const { states } = projection
  const known = new LRUCache<string, { readonly state: unknown }>({ max: statesMax })
  /** Why a stream has no state: it broke its rules before the batch. */
  const broken = new Map<string, Error>()

  const missing = (decoded: Decoded): Map<string, Decoded['recorded'][number]> => {
    const first = new Map<string, Decoded['recorded'][number]>()
    for (const event of decoded.recorded)
      if (event.revision > 0 && concerns(projection, event.stream) && !first.has(event.stream))
        if (known.peek(event.stream) === undefined) first.set(event.stream, event)
    for (const event of decoded.recorded) if (event.revision === 0) first.delete(event.stream)
    return first
  }

  const drafts = () => {
    const changed = new Map<string, unknown>()
    return {
      changed,
      evolve: (event: ProjectedEvent, copied = false): void => {
        const { stream } = event
        const error = broken.get(stream)
        if (error !== undefined) throw error
        let draft = changed.get(stream)
        if (draft === undefined || copied) {
          const kept = draft ?? known.get(stream)?.state
          draft = kept === undefined ? states.initial(stream) : states.copy(kept)
        }
        states.evolve(draft, event)
        changed.set(stream, draft)
      },
    }
  }

  return {
    needsRows: (decoded) => missing(decoded).size > 0,
    prepare: async (client, decoded) => {
      const first = missing(decoded)
      if (first.size === 0) return
      for (const [stream, loaded] of await loadStates(client, projection, { table, eventLog, seal, first }))
        if (loaded instanceof Error) broken.set(stream, loaded)
        else known.set(stream, { state: loaded })
    },
    fold: (events) => {
      const { changed, evolve } = drafts()
      for (const event of events) evolve(event)
      const before = [...changed.keys()].map((stream) => [stream, known.peek(stream)] as const)
      const changes = states.write([...changed.values()], seal)
      for (const [stream, state] of changed) {
        states.written(state)
        known.set(stream, { state })
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
      const { evolve } = drafts()
      return (event) => evolve(event, true)
    },
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
