import type { Logger } from 'pino'
import { type MicroCredits, parseCredits } from '../billing/money.ts'
import { type EventLog, type NewEvent, StreamMissing } from '../event-log/port.ts'
import type { Batch, Queued } from './batch.ts'
import type { Committed, LedgerCommand } from './command.ts'

/**
 * Batches whose callers were refused although their append may still arrive. An append stands at exactly its revision,
 * so the event there decides: the batch's own, and its charges are given back; another's, and it can never arrive.
 */
type Abandoned = {
  add(batch: Batch): void
  /** These stand in the ledger after `base`, and their callers were refused: their charges are due for reversal. */
  unheard(commands: ReadonlyMap<string, Committed>, base: number): void
  /** Nothing is pending. */
  empty(): boolean
  /** The command was sent again and answered: its charge, wherever it stands, is owed. */
  answered(firstEventId: string): void
  /**
   * Looks whether abandoned batches arrived. A queued command that stands in one is answered by it and taken from the
   * queue; every other charge in it is due for reversal. Throws what the event log throws.
   */
  lookAgain(queue: Queued[]): Promise<void>
  /** The reversals that are due, to be handed to the ledger like any command. */
  due(): readonly Reversal[]
  done(reversal: Reversal): void
}

export type Reversal = {
  readonly chargeId: string
  readonly amount: MicroCredits
  /** The call that was charged, by its first event id. */
  readonly firstEventId: string
  /** The reversal cannot stand before the charge it reverses. */
  readonly absentUpTo: number
}

const batchesMax = 64

export const createAbandoned = ({ stream, eventLog }: { stream: string; eventLog: EventLog }): Abandoned => {
  let batches: {
    readonly base: number
    readonly first: NewEvent | undefined
    readonly commands: Map<string, Committed>
  }[] = []
  const reversals = new Map<string, Reversal>()

  const arrived = (commands: ReadonlyMap<string, Committed>, base: number, queue: Queued[]): void => {
    for (const [firstEventId, committed] of commands) {
      const retry = queue.findIndex((queued) => queued.firstEventId === firstEventId)
      if (retry !== -1) {
        for (const { resolve } of queue.splice(retry, 1)) resolve({ ...committed, repeated: true })
        continue
      }
      for (const event of committed.events)
        if (event.type === 'CreditCharged')
          reversals.set(event.data.charge_id, {
            chargeId: event.data.charge_id,
            amount: parseCredits(event.data.amount),
            firstEventId,
            absentUpTo: base,
          })
    }
  }

  return {
    add: ({ base, events, byFirstEventId }) => {
      // What has waited longest is the least likely to arrive still.
      batches = [...batches, { base, first: events[0], commands: new Map(byFirstEventId) }].slice(-batchesMax)
    },
    unheard: (commands, base) => arrived(commands, base, []),
    empty: () => batches.length === 0 && reversals.size === 0,
    answered: (firstEventId) => {
      for (const { commands } of batches) commands.delete(firstEventId)
    },
    lookAgain: async (queue) => {
      for (const { command } of queue) {
        const { owes } = command
        if (owes === undefined) continue
        for (const { commands } of batches) commands.delete(owes)
        for (const reversal of [...reversals.values()])
          if (reversal.firstEventId === owes) reversals.delete(reversal.chargeId)
      }
      for (const batch of batches) {
        const [there] = await eventLog
          .read(stream, { from: batch.base + 1, max: 1 })
          .catch((error: unknown) => {
            if (error instanceof StreamMissing) return []
            throw error
          })
        if (there === undefined) continue
        batches = batches.filter((one) => one !== batch)
        // The metadata holds the digest: the same ids with other bytes are another process's doing, and answered there.
        if (there.metadata === batch.first?.metadata) arrived(batch.commands, batch.base, queue)
      }
    },
    due: () => [...reversals.values()],
    done: ({ chargeId }) => reversals.delete(chargeId),
  }
}

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
