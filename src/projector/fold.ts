import type pg from 'pg'
import type {
  ProjectedEvent,
  Projection,
  RowSeal,
  StatelessProjection,
  TableName,
} from '../../projections/projection.ts'
import type { Change } from '../../projections/rows.ts'
import type { EventLog } from '../event-log/port.ts'
import { concerns, type Decoded } from './batch.ts'
import { messageOf } from './isolate.ts'
import { stateful } from './states.ts'

export type Poison = { readonly position: bigint; readonly stream: string; readonly error: string }

export type Folded = {
  readonly changes: readonly Change[]
  /**
   * The events that cannot be applied, in log order. In a money projection, there is at most one for each stream, because later events
   * of the stream are not folded.
   */
  readonly poison: readonly Poison[]
  /** Undoes the fold if its changes were not written. Later folds must be undone first. */
  undo(): void
}

/** Folds one projection into one set of tables. Batches must come in log order. */
export type Folder = {
  readonly projection: Projection
  readonly table: TableName
  /** Whether `prepare` must read rows. If so, pending writes must finish before `prepare` is called. */
  needsRows(decoded: Decoded): boolean
  /** Loads the state of each stream in the batch, as it was before the batch. */
  prepare(client: pg.ClientBase, decoded: Decoded): Promise<void>
  fold(decoded: Decoded): Folded
  /** Halts a stream: its later events are not folded. */
  halt(stream: string): void
}

export type FolderOptions = {
  readonly table: TableName
  readonly eventLog: Pick<EventLog, 'read'>
  readonly seal: RowSeal
  /** For a money projection: the streams that are already halted. */
  readonly halted?: Iterable<string>
}

/** The part of folding in which stateless and stateful projections differ. */
export type Making = Pick<Folder, 'needsRows' | 'prepare'> & {
  /** If one of the events cannot be applied, throws an error and changes nothing. */
  fold(events: readonly ProjectedEvent[]): Pick<Folded, 'changes' | 'undo'>
  /** Returns a function that folds one event at a time, to find the faulty event. */
  tried(): (event: ProjectedEvent) => void
}

export const createFolder = (projection: Projection, options: FolderOptions): Folder => {
  const halted = new Set(options.halted)
  const making = 'states' in projection ? stateful(projection, options) : stateless(projection)
  const concerned = (stream: string): boolean => concerns(projection, stream) && !halted.has(stream)

  const fold = (decoded: Decoded): Folded => {
    const own = decoded.events.filter(({ stream }) => concerned(stream))
    const unreadable = decoded.unreadable.filter(({ event }) => concerned(event.stream))
    if (unreadable.length === 0) {
      try {
        return { poison: [], ...making.fold(own) }
      } catch {
        // The code below folds one event at a time, to find the faulty event.
      }
    }
    const { good, poison } = separate(
      { own, unreadable },
      { money: projection.money, attempt: making.tried() },
    )
    const { changes, undo } = making.fold(good)
    const stopped = projection.money ? poison.map(({ stream }) => stream) : []
    for (const stream of stopped) halted.add(stream)
    return {
      changes,
      poison,
      undo: () => {
        undo()
        for (const stream of stopped) halted.delete(stream)
      },
    }
  }

  const { needsRows, prepare } = making
  return {
    projection,
    table: options.table,
    needsRows,
    prepare,
    fold,
    halt: (stream) => halted.add(stream),
  }
}

const stateless = ({ fold }: StatelessProjection): Making => ({
  needsRows: () => false,
  prepare: async () => undefined,
  fold: (events) => ({ changes: fold(events), undo: () => undefined }),
  tried: () => (event) => {
    fold([event])
  },
})

const separate = (
  { own, unreadable }: { own: readonly ProjectedEvent[]; unreadable: Decoded['unreadable'] },
  { money, attempt }: { money: boolean; attempt: (event: ProjectedEvent) => void },
): { good: ProjectedEvent[]; poison: Poison[] } => {
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
