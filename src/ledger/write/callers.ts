import { createOutage, type Outage } from '../../event-log/outage.ts'
import { Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import type { LedgerCommand } from '../command.ts'
import type { Batch } from './batch.ts'
import { LedgerOutcomeUnknown, LedgerUnavailable, type WriterOptions } from './options.ts'
import type { Caller, CommandQueue, Queued } from './queue.ts'
import type { Found } from './reader.ts'

/**
 * Answers the callers of commands. `LedgerUnavailable` is final: it is given only if nothing was sent, or if the place of the append is
 * decided against it. Otherwise a caller who has waited too long gets `LedgerOutcomeUnknown`.
 */
export class Callers {
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #queue: CommandQueue
  readonly #trouble: Outage

  constructor(organizationId: string, options: WriterOptions, queue: CommandQueue) {
    this.#organizationId = organizationId
    this.#options = options
    this.#queue = queue
    const { logger } = options
    this.#trouble = createOutage({ logger, what: `ledger: writing ${organizationId}`, level: 'error' })
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
    for (const { balance } of this.#queue.answer(found))
      this.#options.reports.balance(this.#organizationId, balance)
  }

  /** The log took an append. */
  works(): void {
    this.#options.reports.appended()
    this.#options.away.works()
    this.#trouble.works()
  }

  /** A batch is durable, or leads to no events. */
  settle({ decided, refused }: Batch): void {
    for (const { queued, committed } of decided) queued.resolve(committed)
    for (const { queued, error } of refused) queued.reject(error)
    const last = decided.at(-1)
    if (last !== undefined) this.#options.reports.balance(this.#organizationId, last.committed.balance)
  }

  /** The log failed: the failure is logged as a part of an outage. */
  failed(cause: unknown): void {
    if (cause instanceof Unavailable || cause instanceof UnknownOutcome) this.#options.away.failed(cause)
    else this.#trouble.failed(cause)
  }

  /** Nothing was written for them, and nothing will be. */
  refuse(commands: readonly Queued[], cause: unknown): void {
    if (commands.length === 0) return
    this.failed(cause)
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause })
    for (const queued of commands) queued.reject(error)
  }

  /** Their commands may have been written. */
  leaveUnknown(commands: readonly Queued[], cause: unknown): void {
    const error = new LedgerOutcomeUnknown('it is not known in time whether the command was written', {
      cause,
    })
    for (const queued of commands) {
      queued.gaveUp = true
      queued.reject(error)
    }
  }

  /**
   * Ends the wait of callers who have waited too long, also if their commands are under way; and of all callers whose commands wait to
   * be decided while the log does not answer.
   */
  refuseLate(underWay: readonly Queued[], nowMs: number): void {
    const { limits, gate } = this.#options
    const { callerWaitMaxMs } = limits
    const isLate = ({ queuedAtMs, gaveUp, command }: Queued): boolean =>
      !gaveUp && nowMs - queuedAtMs >= Math.min(callerWaitMaxMs, command.waitMaxMs ?? callerWaitMaxMs)
    const isShut = typeof gate?.shutForMs() === 'number'
    const late = new Unavailable('the event log did not answer within the time a caller waits')
    // Commands that wait to be decided are in no append, unless they repeat one that is under way.
    const sent = new Set(underWay.map(({ firstEventId }) => firstEventId))
    const waiting = this.#queue.takeOut((queued) => isShut || isLate(queued))
    this.refuse(
      waiting.filter(({ firstEventId }) => !sent.has(firstEventId)),
      late,
    )
    const repeating = waiting.filter(({ firstEventId }) => sent.has(firstEventId))
    this.leaveUnknown([...underWay.filter(isLate), ...repeating], late)
  }
}
