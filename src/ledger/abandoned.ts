import type { Logger } from 'pino'
import { type MicroCredits, parseCredits } from '../billing/money.ts'
import type { NewEvent, RecordedEvent } from '../event-log/port.ts'
import type { Batch } from './batch.ts'
import type { Committed, LedgerCommand } from './command.ts'
import type { Queued } from './queue.ts'
import type { LedgerReader } from './reader.ts'

/**
 * Batches whose callers were refused although their append may still arrive. An append is at exactly its revision, so the
 * event there decides: the batch's own, and its charges are given back; another's, and it can never arrive.
 */
export class Abandoned {
  readonly #reader: Pick<LedgerReader, 'page'>
  #batches: AbandonedBatch[] = []
  readonly #due = new Map<string, Reversal>()

  constructor(reader: Pick<LedgerReader, 'page'>) {
    this.#reader = reader
  }

  add({ base, events, byFirstEventId }: Batch): void {
    // What has waited longest is the least likely to arrive still.
    const added = { base, first: events[0], commands: new Map(byFirstEventId) }
    this.#batches = [...this.#batches, added].slice(-batchesMax)
  }

  /** Nothing is pending. */
  empty(): boolean {
    return this.#batches.length === 0 && this.#due.size === 0
  }

  /** The command was sent again and answered: its charge, wherever it is, is owed. */
  answered(firstEventId: string): void {
    for (const { commands } of this.#batches) commands.delete(firstEventId)
  }

  /** The ledger holds this command after `base`, and its callers were refused: its charge is due for reversal. */
  unheard(firstEventId: string, { events }: Committed, base: number): void {
    for (const event of events)
      if (event.type === 'CreditCharged')
        this.#due.set(event.data.charge_id, {
          chargeId: event.data.charge_id,
          amount: parseCredits(event.data.amount),
          firstEventId,
          absentUpTo: base,
        })
  }

  /**
   * Looks whether abandoned batches arrived. Returns the commands that did and that `queue` holds: they are answered by
   * their events. Every other charge is due for reversal. Throws what the event log throws.
   */
  async lookAgain(queue: readonly Queued[]): Promise<Map<string, Committed>> {
    for (const { command } of queue) if (command.owes !== undefined) this.#isOwed(command.owes)
    const places = new Map<AbandonedBatch, RecordedEvent>()
    for (const batch of this.#batches) {
      const [there] = await this.#reader.page(batch.base + 1, 1)
      if (there !== undefined) places.set(batch, there)
    }
    this.#batches = this.#batches.filter((batch) => !places.has(batch))
    const found = new Map<string, Committed>()
    for (const [{ base, first, commands }, there] of places) {
      // The metadata holds the digest: the same ids with other bytes are another process's doing, and answered there.
      if (there.metadata !== first?.metadata) continue
      for (const [firstEventId, committed] of commands)
        if (queue.some((queued) => queued.firstEventId === firstEventId)) found.set(firstEventId, committed)
        else this.unheard(firstEventId, committed, base)
    }
    return found
  }

  /** Its answer is delivered after all. */
  #isOwed(firstEventId: string): void {
    this.answered(firstEventId)
    for (const reversal of [...this.#due.values()])
      if (reversal.firstEventId === firstEventId) this.done(reversal)
  }

  /** The reversals that are due, to be handed to the ledger like any command. */
  due(): readonly Reversal[] {
    return [...this.#due.values()]
  }

  done({ chargeId }: Reversal): void {
    this.#due.delete(chargeId)
  }
}

type AbandonedBatch = {
  readonly base: number
  readonly first: NewEvent | undefined
  readonly commands: Map<string, Committed>
}

export type Reversal = {
  readonly chargeId: string
  readonly amount: MicroCredits
  /** The call that was charged, by its first event id. */
  readonly firstEventId: string
  /** The reversal cannot be before the charge it reverses. */
  readonly absentUpTo: number
}

const batchesMax = 64

/**
 * The key of whatever settles a charge whose caller was refused, by the first event id of the charged call: the charge
 * is given back, or its answer is delivered after all. Both have this key and say up to where the ledger holds neither,
 * so one of them is written and the other is answered by it, whichever process sends which.
 */
export const settlementKeyOf = (firstEventId: string): string => `settled/${firstEventId}`

/**
 * The command that gives a charge back. Its key makes it happen once, whoever sends it how often, and not at all where
 * the answer was delivered: then it is answered by that call's events.
 */
export const reversalCommand = (
  { chargeId, amount, firstEventId, absentUpTo }: Reversal,
  { nowMs, logger }: { nowMs: number; logger: Logger },
): LedgerCommand => {
  logger.warn({ chargeId }, 'ledger: a charge arrived after its call was refused; reversing it')
  return {
    key: settlementKeyOf(firstEventId),
    absentUpTo,
    atMs: nowMs,
    actor: 'system',
    kind: 'adjust',
    adjusts: chargeId,
    amount,
    reason: 'the answer was never delivered',
    rerateRun: null,
  }
}
