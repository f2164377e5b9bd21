import type pg from 'pg'
import type { Change } from '../../projections/rows.ts'
import { begin } from '../concurrency/transaction.ts'
import { type LogPlace, logStart, type Position, placeOf, type SubscriptionItem } from '../event-log/port.ts'
import { readingAhead } from '../event-log/read-stream.ts'
import { type Decoded, decodeBatch, within } from './batch.ts'
import { countTotals, type LogTotals } from './compare-totals.ts'
import type { Folded, Folder, Poison } from './fold.ts'
import { eventByEvent, isDataError } from './isolate.ts'
import type { SecondSet } from './second-set.ts'
import { writeChanges } from './tables.ts'

/** A projection that is being folded into new tables, with its current position and its target. */
export type Build = {
  readonly folder: Folder
  position: Position
  target: Position
  readonly poison: Poison[]
  /** For money projections: the totals according to the log. The new tables go live only if their rows have these totals. */
  readonly totals?: LogTotals | undefined
  /** Stores the position in the transaction that writes the rows, so that another rebuild can continue from there. */
  readonly note?: (to: LogPlace, poison: readonly Poison[]) => Promise<void>
}

const batchMax = 10_000

/** Folds every build up to its target. While one batch is folded, the next batch is read and the previous batch is written. */
export const foldUp = async (work: SecondSet, piece: Piece): Promise<void> => {
  const { eventLog, signal } = work.options
  const due = work.builds.filter((build) => readTo(build) < build.target)
  if (due.length === 0) return
  const target = due.reduce((most, build) => (build.target > most ? build.target : most), logStart)
  const after = due.reduce((least, build) => (readTo(build) < least ? readTo(build) : least), target)
  const prefixes = [...new Set(due.flatMap(({ folder }) => folder.projection.prefixes))]
  const done = new AbortController()
  const until = signal === undefined ? done.signal : AbortSignal.any([signal, done.signal])
  const writer = createWriter(work.client, piece)
  try {
    const items = eventLog.subscribe({ after, prefixes, batchMax, signal: until })
    for await (const item of readingAhead(items, done)) {
      if (item.kind === 'events') {
        await foldBatch(decodeBatch(item.events), due, { client: work.client, writer })
        work.events += item.events.length
      }
      if (advance(work, due, { item, target }) === target) break
    }
    await writer.settle()
  } finally {
    await writer.idle()
  }
  signal?.throwIfAborted()
}

/**
 * The position up to which the log was read for a build. A build that continues a killed one still has to count its totals from
 * the beginning of the log.
 */
const readTo = ({ position, totals }: Build): Position =>
  totals !== undefined && totals.position < position ? totals.position : position

const foldBatch = async (
  decoded: Decoded,
  due: readonly Build[],
  { client, writer }: { client: pg.Client; writer: Writer },
): Promise<void> => {
  const parts = due.map((build) => ({
    build,
    decoded: within(decoded, { after: build.position, to: build.target }),
  }))
  if (parts.some((part) => part.build.folder.needsRows(part.decoded))) await writer.settle()
  countTotals(
    due.flatMap(({ totals, target }) => (totals === undefined ? [] : [{ totals, to: target }])),
    decoded,
  )
  for (const part of parts) await part.build.folder.prepare(client, part.decoded)
  await writer.write(parts.map((part) => ({ ...part, ...part.build.folder.fold(part.decoded) })))
}

/** Moves the builds to the position up to which the log was read, but not beyond their targets. Returns that position. */
const advance = (
  { events, startedAt, options }: SecondSet,
  due: readonly Build[],
  { item, target }: { item: SubscriptionItem; target: Position },
): Position => {
  // `caught-up` means that the log was read up to the target, even if no projection uses the last events.
  const reached = item.kind === 'caught-up' || item.position > target ? target : item.position
  for (const build of due) {
    const to = reached < build.target ? reached : build.target
    // A build that is further ahead is not moved back.
    if (to > build.position) build.position = to
    if (build.totals !== undefined && to > build.totals.position) build.totals.position = to
  }
  options.onProgress?.({ position: reached, target, events, elapsedMs: performance.now() - startedAt })
  return reached
}

/** The SQL statements around each batch: a separate transaction, or a savepoint in a longer transaction. */
type Piece = { readonly begin: string; readonly keep: string; readonly undo: string }
export const inTransaction: Piece = { begin, keep: 'commit', undo: 'rollback' }
export const inSavepoint: Piece = {
  begin: 'savepoint piece',
  keep: 'release savepoint piece',
  undo: 'rollback to savepoint piece',
}

type Batch = Folded & { readonly build: Build; readonly decoded: Decoded }

const lastOf = ({ recorded }: Decoded): LogPlace | null => {
  const last = recorded.at(-1)
  return last === undefined ? null : placeOf(last)
}

type Writer = {
  /** Starts to write folded batches when the previous ones are written. */
  write(batches: readonly Batch[]): Promise<void>
  /** Resolves when all batches are written or set aside. */
  settle(): Promise<void>
  /** Resolves when no batch is being written. Rejects if writing failed. */
  idle(): Promise<unknown>
}

/** Writes one batch while the next batch is folded. If the database refuses a batch, it is written event by event. */
const createWriter = (client: pg.Client, piece: Piece): Writer => {
  /** Resolves with the batches that the database refused as a whole. */
  let writing: Promise<readonly Batch[]> = Promise.resolve([])

  const writePiece = async (
    { folder, note, poison }: Build,
    changes: readonly Change[],
    { to, more = [] }: { readonly to: LogPlace | null; readonly more?: readonly Poison[] },
  ): Promise<void> => {
    await client.query(piece.begin)
    try {
      await writeChanges(client, changes, folder.table)
      if (to !== null) await note?.(to, [...poison, ...more])
      await client.query(piece.keep)
    } catch (error) {
      await client.query(piece.undo).catch(() => undefined)
      throw error
    }
  }

  const writeBatches = async (batches: readonly Batch[]): Promise<Batch[]> => {
    const refused: Batch[] = []
    for (const batch of batches) {
      if (batch.changes.some(({ rows }) => rows.length > 0) || batch.poison.length > 0)
        try {
          await writePiece(batch.build, batch.changes, { to: lastOf(batch.decoded), more: batch.poison })
        } catch (error) {
          if (!isDataError(error)) throw error
          refused.push(batch)
          continue
        }
      batch.build.poison.push(...batch.poison)
    }
    return refused
  }

  /** Writes refused batches event by event, and then folds the batches after them again. */
  const isolate = async (refused: readonly Batch[], ahead: readonly Batch[]): Promise<readonly Batch[]> => {
    const builds = new Set(refused.map(({ build }) => build))
    for (const { build, undo } of ahead) if (builds.has(build)) undo()
    for (const { build, decoded, undo } of refused) {
      undo()
      await eventByEvent(build.folder, decoded, {
        write: (position, changes) =>
          writePiece(build, changes, { to: lastOf(within(decoded, { after: position - 1n, to: position })) }),
        refused: async (poison) => void build.poison.push(poison),
      })
    }
    return ahead.map((batch) =>
      builds.has(batch.build) ? { ...batch, ...batch.build.folder.fold(batch.decoded) } : batch,
    )
  }

  const write: Writer['write'] = async (ahead) => {
    const refused = await writing
    writing = writeBatches(refused.length === 0 ? ahead : await isolate(refused, ahead))
    // The promise is awaited only with the next batch. Until then, a failure must not be an unhandled rejection.
    writing.catch(() => undefined)
  }
  return { write, settle: () => write([]), idle: () => writing }
}
