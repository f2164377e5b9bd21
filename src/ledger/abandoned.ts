import { type MicroCredits, parseCredits } from '../billing/money.ts'
import { findOut, type Place, placeOf } from './append-batch.ts'
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

  add(batch: Batch): void {
    const commands = new Map(batch.byFirstEventId)
    // What has waited longest is the least likely to arrive still.
    const added = { place: placeOf(batch), commands }
    this.#batches = [...this.#batches, added].slice(-batchesMax)
  }

  /** Nothing is pending. */
  empty(): boolean {
    return this.#batches.length === 0 && this.#due.size === 0
  }

  /** The requests whose callers were refused and that are charged, or may come to be, by their ids. */
  owed(): string[] {
    const ids = [
      ...this.#batches.flatMap(({ commands }) => [...commands.values()].map(({ requestId }) => requestId)),
      ...[...this.#due.values()].map(({ requestId }) => requestId),
    ]
    return [...new Set(ids.filter((id) => id !== undefined))]
  }

  /** The command was sent again and answered: its charge, wherever it is, is owed. */
  answered(firstEventId: string): void {
    for (const { commands } of this.#batches) commands.delete(firstEventId)
  }

  /** The ledger holds this command after `base`, and its callers were refused: its charge is due for reversal. */
  unheard(firstEventId: string, { events, requestId }: Committed, base: number): void {
    for (const event of events)
      if (event.type === 'CreditCharged')
        this.#due.set(event.data.charge_id, {
          chargeId: event.data.charge_id,
          amount: parseCredits(event.data.amount),
          firstEventId,
          requestId,
          absentUpTo: base,
        })
  }

  /**
   * Looks whether abandoned batches arrived. Returns the commands that did and that `queue` holds: they are answered by
   * their events. The charge of every other one is due for reversal. Throws what the event log throws.
   */
  async lookAgain(queue: readonly Queued[]): Promise<Map<string, Committed>> {
    for (const { command } of queue) if (command.owes !== undefined) this.#isOwed(command.owes)
    const arrived = new Map<AbandonedBatch, boolean>()
    for (const batch of this.#batches) {
      const there = await findOut(batch.place, this.#reader)
      if (there !== 'nothing') arrived.set(batch, there === 'the batch')
    }
    this.#batches = this.#batches.filter((batch) => !arrived.has(batch))
    const found = new Map<string, Committed>()
    for (const [{ place, commands }, itself] of arrived) {
      // The same ids with other bytes are another process's doing, and answered there.
      if (!itself) continue
      for (const [firstEventId, committed] of commands) {
        const again = queue.filter((queued) => queued.firstEventId === firstEventId)
        if (again.length > 0) found.set(firstEventId, committed)
        else this.unheard(firstEventId, committed, place.base)
      }
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

  /** A re-rate came after the charge: so much is left to give back, as of a revision. */
  leaves(reversal: Reversal, { amount, asOf }: { amount: MicroCredits; asOf: number }): void {
    if (!this.#due.has(reversal.chargeId)) return
    if (amount > 0n) this.#due.set(reversal.chargeId, { ...reversal, amount, asOf })
    else this.done(reversal)
  }
}

type AbandonedBatch = { readonly place: Place; readonly commands: Map<string, Committed> }

export type Reversal = {
  readonly chargeId: string
  readonly amount: MicroCredits
  /** The call that was charged, by its first event id. */
  readonly firstEventId: string
  readonly requestId?: string | undefined
  /** The reversal cannot be before the charge it reverses. */
  readonly absentUpTo: number
  /** The amount is what the call costs as of this revision, and is not given back where a re-rate came since. Default: `absentUpTo`. */
  readonly asOf?: number
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
  { chargeId, amount, firstEventId, absentUpTo, asOf = absentUpTo }: Reversal,
  nowMs: number,
): LedgerCommand => ({
  key: settlementKeyOf(firstEventId),
  absentUpTo,
  atMs: nowMs,
  actor: 'system',
  kind: 'adjust',
  adjusts: chargeId,
  amount,
  reason: 'the answer was never delivered',
  rerateRun: null,
  correction: 'reversal',
  unlessReratedAfter: asOf,
})
