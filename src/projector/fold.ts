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
  readonly seal: RowSeal
  /** Streams of money that are halted already. */
  readonly halted?: Iterable<string>
}

/** How the events of a batch become changes. Stateless and stateful projections differ only here. */
export type Making = Pick<Folder, 'needsRows' | 'prepare'> & {
  /** Throws, and has changed nothing, where one of the events cannot be taken. */
  fold(events: readonly ProjectedEvent[]): Pick<Folded, 'changes' | 'undo'>
  /** The same, event by event, to find out which: throws where this one cannot be taken. */
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
        // Found one by one below.
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

/** Tells what can be folded from what cannot. */
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
