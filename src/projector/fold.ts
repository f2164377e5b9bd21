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

/** An event that a projection cannot apply. */
export type Poison = { readonly position: bigint; readonly stream: string; readonly error: string }

/** The result of folding a batch. */
export type Folded = {
  readonly changes: readonly Change[]
  /** In the order of the log. For money, at most one per stream, because nothing after it is folded. */
  readonly poison: readonly Poison[]
  /** Reverts the fold, because its changes were not written. Later folds have to be reverted first. */
  undo(): void
}

/** Folds one projection into one set of tables. Batches come in the order of the log. */
export type Folder = {
  readonly projection: Projection
  readonly table: TableName
  /** Whether `prepare` would have to read rows. If so, pending writes have to finish first. */
  needsRows(decoded: Decoded): boolean
  /** Loads the states of the batch's streams before the batch. */
  prepare(client: pg.ClientBase, decoded: Decoded): Promise<void>
  fold(decoded: Decoded): Folded
  /** Stops folding the stream. */
  halt(stream: string): void
}

export type FolderOptions = {
  readonly table: TableName
  readonly eventLog: Pick<EventLog, 'read'>
  readonly seal: RowSeal
  /** Streams of money that are halted already. */
  readonly halted?: Iterable<string>
}

/** How the events of a batch become changes: the only difference between stateless and stateful projections. */
export type Making = Pick<Folder, 'needsRows' | 'prepare'> & {
  /** Throws, without a change, if one of the events cannot be applied. */
  fold(events: readonly ProjectedEvent[]): Pick<Folded, 'changes' | 'undo'>
  /** The same, event by event, to find the faulty one: throws if this event cannot be applied. */
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
        // The faulty event is found below, event by event.
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

/** Separates events that can be folded from events that cannot. */
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
