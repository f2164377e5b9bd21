import { createOutage, type Outage } from '../event-log/outage.ts'
import { Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { type Abandoned, reversalCommand } from './abandoned.ts'
import { type Batch, unheardOf } from './batch.ts'
import { LedgerUnavailable, type WriterOptions } from './options.ts'
import type { CommandQueue, Queued } from './queue.ts'
import type { Found } from './reader.ts'

/**
 * Tells callers what became of their commands, and sees to it that nothing stays charged to a caller who was refused: such
 * a charge is given back, once it is found in the ledger.
 */
export class Callers {
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #queue: CommandQueue
  readonly #abandoned: Abandoned
  readonly #trouble: Outage
  readonly #onDue: () => void
  #check: NodeJS.Timeout | undefined

  constructor(
    organizationId: string,
    options: WriterOptions,
    {
      queue,
      abandoned,
      onDue,
    }: {
      readonly queue: CommandQueue
      readonly abandoned: Abandoned
      /** It is time to look again whether abandoned batches arrived. */
      readonly onDue: () => void
    },
  ) {
    this.#organizationId = organizationId
    this.#options = options
    this.#queue = queue
    this.#abandoned = abandoned
    this.#onDue = onDue
    const { logger } = options
    this.#trouble = createOutage({ logger, what: `ledger: writing ${organizationId}`, level: 'error' })
  }

  /** Answers queued commands that were found in the ledger. */
  answer(found: Found): void {
    for (const { firstEventId } of this.#queue.answer(found)) {
      this.#abandoned.answered(firstEventId)
      const committed = found.get(firstEventId)
      if (committed !== undefined) this.#options.reports.balance(this.#organizationId, committed.balance)
    }
  }

  /** The log took an append. */
  works(): void {
    this.#options.reports.appended()
    this.#options.away.works()
    this.#trouble.works()
  }

  /** A batch is durable, or leads to no events. */
  settle({ base, decided, refused }: Batch): void {
    for (const { queued, committed } of decided) if (!queued.gaveUp) queued.resolve(committed)
    for (const { queued, error } of refused) queued.reject(error)
    const last = decided.at(-1)
    if (last !== undefined) this.#options.reports.balance(this.#organizationId, last.committed.balance)
    for (const [firstEventId, committed] of unheardOf({ decided })) {
      this.#abandoned.unheard(firstEventId, committed, base)
      this.lookLater()
    }
  }

  /** Nothing was written for them, as far as is known. */
  refuse(commands: readonly Queued[], cause: unknown): void {
    if (commands.length === 0) return
    if (cause instanceof Unavailable || cause instanceof UnknownOutcome) this.#options.away.failed(cause)
    else this.#trouble.failed(cause)
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause })
    for (const { reject } of commands) reject(error)
  }

  /** Refuses those who have waited too long, also those whose commands are under way. */
  refuseLate(underWay: readonly Queued[], nowMs: number): void {
    const { callerWaitMaxMs } = this.#options.limits
    const isLate = ({ queuedAtMs, gaveUp, command }: Queued): boolean =>
      !gaveUp && nowMs - queuedAtMs >= Math.min(callerWaitMaxMs, command.waitMaxMs ?? callerWaitMaxMs)
    const late = [...this.#queue.takeOut(isLate), ...underWay.filter(isLate)]
    for (const queued of late) queued.gaveUp = true
    this.refuse(late, new Unavailable('no word of the event log for as long as a caller waits'))
  }

  /** The callers of a batch are refused although it may still arrive. */
  abandon(batch: Batch): void {
    this.#abandoned.add(batch)
    this.lookLater()
  }

  lookLater(): void {
    if (this.#check !== undefined) return
    this.#check = setTimeout(() => {
      this.#check = undefined
      this.#onDue()
    }, this.#options.limits.abandonedCheckMs)
    this.#check.unref()
  }

  /** Queues what gives back the charges that are due, behind everything that waits. */
  giveBack(nowMs: number): void {
    const { clock, logger, observe } = this.#options
    for (const reversal of this.#abandoned.due()) {
      const command = reversalCommand(reversal, { nowMs: clock.now(), logger })
      if (this.#queue.has(command.key)) continue
      this.#queue.push(command, {
        queuedAtMs: nowMs,
        resolve: ({ events }) => {
          this.#abandoned.done(reversal)
          // Otherwise the answer was delivered after all, perhaps by another process: the charge is owed.
          if (events.some(({ type }) => type === 'CreditAdjusted')) observe?.reversal?.()
        },
        reject: (error) => {
          const { chargeId } = reversal
          logger.error(
            { err: error, organizationId: this.#organizationId, chargeId },
            'ledger: a reversal could not be written yet',
          )
          this.lookLater()
        },
      })
    }
    if (!this.#abandoned.empty()) this.lookLater()
  }
}
