import { createOutage, type Outage } from '../event-log/outage.ts'
import { Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { type Abandoned, type Reversal, reversalCommand } from './abandoned.ts'
import { type Batch, unheardOf } from './batch.ts'
import { costAsOf } from './call-costs.ts'
import { adjustedMeanwhile, CommandRefused, type LedgerCommand } from './command.ts'
import { LedgerUnavailable, type WriterOptions } from './options.ts'
import type { Caller, CommandQueue, Queued } from './queue.ts'
import type { Found } from './reader.ts'

/** Charge ids that are remembered as told. */
const toldMax = 10_000

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
  /** Reversals, of all charges of the organization. */
  readonly #reversing: Outage
  readonly #told = new Set<string>()
  readonly #onDue: () => void
  #check: NodeJS.Timeout | undefined
  #reading: Promise<void> = Promise.resolve()

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
    const what = `ledger: writing reversals of ${organizationId}`
    this.#reversing = createOutage({ logger, what, level: 'error' })
  }

  /** Queues a command. False: its caller is refused, as too many wait. */
  queue(command: LedgerCommand, caller: Caller): boolean {
    const { length } = this.#queue.waiting
    const queued = this.#queue.queuedOf(command, caller)
    const takes = length < this.#options.limits.queuedPerOrganizationMax
    if (takes) this.#queue.waiting.push(queued)
    else queued.reject(new LedgerUnavailable(`${length} calls of this organization are waiting already`))
    return takes
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
    for (const { queued, committed } of decided) {
      if (!queued.gaveUp) queued.resolve(committed)
    }
    for (const { queued, error } of refused) queued.reject(error)
    const last = decided.at(-1)
    if (last !== undefined) this.#options.reports.balance(this.#organizationId, last.committed.balance)
    for (const [firstEventId, committed] of unheardOf({ decided })) {
      this.#abandoned.unheard(firstEventId, committed, base)
      this.lookLater()
    }
  }

  /** Nothing was written for them, as far as is known. */
  refuse(
    commands: readonly Queued[],
    cause: unknown,
    { mayArrive = false }: { mayArrive?: boolean } = {},
  ): void {
    if (commands.length === 0) return
    if (cause instanceof Unavailable || cause instanceof UnknownOutcome) this.#options.away.failed(cause)
    else this.#trouble.failed(cause)
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause, mayArrive })
    for (const queued of commands) queued.reject(error)
  }

  /** Refuses those who have waited too long, also those whose commands are under way; and all who wait for a log that does not answer. */
  refuseLate(underWay: readonly Queued[], nowMs: number): void {
    const { limits, gate } = this.#options
    const { callerWaitMaxMs } = limits
    const isLate = ({ queuedAtMs, gaveUp, command }: Queued): boolean =>
      !gaveUp && nowMs - queuedAtMs >= Math.min(callerWaitMaxMs, command.waitMaxMs ?? callerWaitMaxMs)
    // Nothing was sent for what still waits to be decided.
    const isShut = typeof gate?.shutForMs() === 'number'
    const late = [...this.#queue.takeOut((queued) => isShut || isLate(queued)), ...underWay.filter(isLate)]
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
    const { clock, observe } = this.#options
    for (const reversal of this.#abandoned.due()) {
      this.#tell(reversal)
      const command = reversalCommand(reversal, clock.now())
      if (this.#queue.has(command.key)) continue
      const queued = this.#queue.queuedOf(command, {
        queuedAtMs: nowMs,
        resolve: ({ events }) => {
          this.#abandoned.done(reversal)
          this.#reversing.works()
          // Otherwise the answer was delivered after all, perhaps by another process: the charge is owed.
          if (events.some(({ type }) => type === 'CreditAdjusted')) observe?.reversal?.()
        },
        reject: (error) => {
          const isCorrected = error instanceof CommandRefused && error.message.startsWith(adjustedMeanwhile)
          // One after the other: each reads the ledger from its charge on.
          if (isCorrected) this.#reading = this.#reading.then(() => this.#giveBackWhatIsLeft(reversal))
          else this.#notGivenBackYet(error)
        },
      })
      this.#queue.waiting.push(queued)
    }
    if (!this.#abandoned.empty()) this.lookLater()
  }

  /** A re-rate since the charge may have given back a part of it, or taken more. Never rejects. */
  async #giveBackWhatIsLeft(reversal: Reversal): Promise<void> {
    const { chargeId, absentUpTo } = reversal
    try {
      const { now, asOf } = await costAsOf(this.#options, this.#organizationId, {
        chargeId,
        from: absentUpTo + 1,
      })
      this.#abandoned.leaves(reversal, { amount: now, asOf })
      if (!this.#abandoned.empty()) this.lookLater()
    } catch (error) {
      this.#notGivenBackYet(error)
    }
  }

  #notGivenBackYet(error: unknown): void {
    this.#reversing.failed(error)
    this.lookLater()
  }

  /** Once for each charge, however often its reversal is tried. */
  #tell({ chargeId }: Reversal): void {
    if (this.#told.has(chargeId)) return
    if (this.#told.size >= toldMax) this.#told.clear()
    this.#told.add(chargeId)
    const { logger } = this.#options
    const about = { organizationId: this.#organizationId, chargeId }
    logger.warn(about, 'ledger: a charge arrived after its call was refused; reversing it')
  }
}
