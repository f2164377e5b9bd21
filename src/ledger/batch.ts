import { chain } from '../event-log/hash-chain.ts'
import { appendEventsMax, type NewEvent } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import { type Account, balanceOf, draftOf, evolve } from './account.ts'
import { CommandRefused, type Committed, type LedgerCommand } from './command.ts'
import { type decideCommand, isRefusal } from './decide.ts'

/** Commands on their way into a ledger: queued, decided together, serialised and chained. No I/O. */

export type Queued = {
  readonly command: LedgerCommand
  readonly firstEventId: string
  readonly idOf: (index: number) => string
  readonly resolve: (committed: Committed) => void
  readonly reject: (error: Error) => void
  /** The ledger is known not to hold the command up to here; infinite where its key cannot come back. */
  absentUpTo: number
  /** On the ledger's clock for durations. */
  readonly queuedAtMs: number
  /** Its caller waited too long and was refused: what it is charged, should it still be written, is given back. */
  gaveUp: boolean
}

export type Batch = {
  /** The batch being written, on whose success this one builds. */
  readonly before: Batch | null
  /** The ledger's last revision before the batch; −1 for a new one. */
  readonly base: number
  readonly draft: Account
  readonly events: NewEvent[]
  readonly decided: { readonly queued: Queued; readonly committed: Committed }[]
  /** Commands the rules forbid, told so when the batch they were decided with is durable. */
  readonly refused: { readonly queued: Queued; readonly error: Error }[]
  /** What was decided by first event id: a command sent twice is decided once. */
  readonly byFirstEventId: Map<string, Committed>
  bytes: number
  /**
   * A command's key is not a fresh request id, so another process may be writing the very same ids with other bytes.
   */
  contended: boolean
  /** A decision contradicted the account while it was folded in: the draft is worth nothing any more. */
  broken: boolean
}

/** The rules of a ledger. */
export type Decide = typeof decideCommand

type BatchLimits = { readonly batchCommandsMax: number; readonly batchBytesMax: number }

export const newBatch = (from: Account, before: Batch | null = null): Batch => ({
  before,
  base: from.revision,
  draft: draftOf(from),
  events: [],
  decided: [],
  refused: [],
  byFirstEventId: new Map(),
  bytes: 0,
  contended: false,
  broken: false,
})

/** The commands of a batch. */
export const commandsOf = ({ decided, refused }: Batch): Queued[] =>
  [...decided, ...refused].map(({ queued }) => queued)

/** The commands of a batch that came to nothing, to be decided anew: those somebody still waits for. */
export const waitingOf = (batch: Batch): Queued[] => commandsOf(batch).filter(({ gaveUp }) => !gaveUp)

/** What a durable batch wrote for callers of whom every one was refused before, by first event id. */
export const unheardOf = ({ decided }: Pick<Batch, 'decided'>): Map<string, Committed> => {
  const unheard = new Map<string, Committed>()
  for (const { queued, committed } of decided) if (queued.gaveUp) unheard.set(queued.firstEventId, committed)
  for (const { queued } of decided) if (!queued.gaveUp) unheard.delete(queued.firstEventId)
  return unheard
}

/**
 * Takes queued commands from the front and decides them onto a batch, one after the other, until it is full. It ends
 * before a command whose key may come back and that the ledger was not looked through for.
 */
export const decideInto = (
  batch: Batch,
  queue: Queued[],
  { stream, limits, decide }: { stream: string; limits: BatchLimits; decide: Decide },
): void => {
  let taken = 0
  for (const queued of queue) {
    if (batch.decided.length >= limits.batchCommandsMax || batch.bytes >= limits.batchBytesMax) break
    // It may be in a part of the ledger that was not looked through: it arrived during the look, or waits for the next.
    if (queued.absentUpTo < batch.base) break
    if (!decideOne(batch, queued, { stream, decide })) break
    taken++
    if (batch.broken) break
  }
  queue.splice(0, taken)
}

/** False: the batch has no room left for what the command leads to. */
const decideOne = (
  batch: Batch,
  queued: Queued,
  { stream, decide }: { stream: string; decide: Decide },
): boolean => {
  // The same command again shares the fate of the batch that holds it.
  for (const holder of [batch.before, batch]) {
    const twin = holder?.byFirstEventId.get(queued.firstEventId)
    if (holder === null || twin === undefined) continue
    holder.decided.push({ queued, committed: { ...twin, repeated: true } })
    return true
  }
  try {
    const decision = decide(batch.draft, queued.command, queued.idOf)
    if (isRefusal(decision)) {
      batch.refused.push({ queued, error: new CommandRefused(decision.refused) })
      return true
    }
    if (decision.length > appendEventsMax)
      throw new RangeError(
        `command ${queued.command.key} leads to ${decision.length} events; an append holds ${appendEventsMax}`,
      )
    if (batch.events.length + decision.length > appendEventsMax) return false
    const encoded = encodeDecision(queued, decision)
    batch.broken = true
    addToBatch(batch, stream, decision, encoded)
    batch.broken = false
    const { command, firstEventId } = queued
    const committed: Committed = {
      events: decision,
      revision: batch.draft.revision,
      balance: balanceOf(batch.draft, command.atMs),
      repeated: false,
    }
    batch.decided.push({ queued, committed })
    // What came to nothing left no trace: the same key may come again and lead to something.
    if (decision.length > 0) batch.byFirstEventId.set(firstEventId, committed)
    batch.contended ||= command.key !== command.requestId
  } catch (error) {
    batch.refused.push({ queued, error: error instanceof Error ? error : new Error(String(error)) })
  }
  return true
}

/** Serialises what was decided for a command. Throws TypeError for data events cannot hold. */
const encodeDecision = (
  { command, firstEventId, idOf }: Queued,
  decision: readonly LedgerEvent[],
): NewEvent[] => {
  const effectiveAt = new Date(command.atMs).toISOString()
  return decision.map((event, i) =>
    encodeEvent(event, {
      id: idOf(i),
      actor: command.actor,
      effectiveAt,
      requestId: command.requestId,
      causationId: i === 0 ? undefined : firstEventId,
    }),
  )
}

/** Chains encoded events onto the batch and folds them into its draft. */
const addToBatch = (
  batch: Batch,
  stream: string,
  decision: readonly LedgerEvent[],
  encoded: readonly NewEvent[],
): void => {
  const { draft } = batch
  decision.forEach((event, i) => {
    const bare = encoded[i]
    if (bare === undefined) return
    const revision = draft.revision + 1
    const chained = chain(bare, { stream, revision, previous: draft.digest })
    evolve(draft, event, revision)
    draft.digest = chained.digest
    batch.events.push(chained.event)
    batch.bytes += chained.event.data.length + chained.event.metadata.length
  })
}
