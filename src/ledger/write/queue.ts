import { createOutage, type Outage } from '../../concurrency/outage.ts'
import { Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { eventIdOf } from '../../event-log/stored-event.ts'
import type { Account } from '../account.ts'
import { type Committed, type LedgerCommand, LedgerOutcomeUnknown, LedgerUnavailable } from '../command.ts'
import type { Batch } from './batch.ts'
import type { WriterOptions } from './options.ts'
import type { Found, LedgerReader } from './reader.ts'

/** A command that is waiting or being written, with its caller. */
export type Queued = {
  readonly command: LedgerCommand
  readonly firstEventId: string
  readonly idOf: (index: number) => string
  readonly resolve: (committed: Committed) => void
  readonly reject: (error: Error) => void
  /** The ledger does not contain the command up to this revision. Infinity: the command's key cannot be used again. */
  absentUpTo: number
  /** The time at which the command was queued, by the monotonic clock. */
  readonly queuedAtMs: number
  /** Whether the caller was answered that the outcome is unknown, and no longer waits. */
  gaveUp: boolean
}

type Caller = Pick<Queued, 'resolve' | 'reject' | 'queuedAtMs'>

/** One organization's undecided commands, in order of arrival. */
export class CommandQueue {
  readonly #organizationId: string
  /** `decideBatch` takes commands from the start. */
  readonly waiting: Queued[] = []

  constructor(organizationId: string) {
    this.#organizationId = organizationId
  }

  /** Prepares a command, without adding it to the queue. */
  queuedOf(command: LedgerCommand, { resolve, reject, queuedAtMs }: Caller): Queued {
    const ids: string[] = []
    const idOf = (index: number): string =>
      (ids[index] ??= eventIdOf(this.#organizationId, command.key, index))
    return {
      command,
      firstEventId: idOf(0),
      idOf,
      resolve,
      reject,
      absentUpTo: command.absentUpTo ?? Number.POSITIVE_INFINITY,
      queuedAtMs,
      gaveUp: false,
    }
  }

  takeOut(which: (queued: Queued) => boolean): Queued[] {
    const taken = this.waiting.filter(which)
    if (taken.length > 0)
      this.waiting.splice(0, this.waiting.length, ...this.waiting.filter((one) => !which(one)))
    return taken
  }

  /**
   * Answers the callers of queued commands that the ledger already contains, and removes these commands from the queue. Returns the
   * answers.
   */
  answer(found: Found): Committed[] {
    if (found.size === 0 || this.waiting.length === 0) return []
    return this.takeOut(({ firstEventId }) => found.has(firstEventId)).flatMap(
      ({ firstEventId, resolve }) => {
        const committed = found.get(firstEventId)
        if (committed === undefined) return []
        resolve({ ...committed, repeated: true })
        return [committed]
      },
    )
  }

  /** Whether the ledger could already contain a queued command, because a part of it has not been searched. */
  mayHold({ revision }: Account): boolean {
    return this.waiting.some(({ absentUpTo }) => absentUpTo < revision)
  }

  /** Searches for the queued commands in the part of the ledger that has not been searched, up to the account's revision. */
  async find(account: Account, reader: LedgerReader, atMs: number): Promise<Found> {
    const after = Math.min(...this.waiting.map(({ absentUpTo }) => absentUpTo))
    const upTo = account.revision
    const found: Found =
      after >= upTo ? new Map() : await reader.findBetween(account, { from: after + 1, to: upTo, atMs })
    this.lookedThrough(after, upTo)
    return found
  }

  /** Must be called after the ledger was searched from after `after` up to `upTo`, and the commands found there have left the queue. */
  lookedThrough(after: number, upTo: number): void {
    for (const queued of this.waiting)
      if (queued.absentUpTo >= after && queued.absentUpTo < upTo) queued.absentUpTo = upTo
  }
}

/**
 * Answers the callers of commands. A caller gets `LedgerUnavailable` only if the command was not written and never will be. Otherwise, an
 * overdue caller gets `LedgerOutcomeUnknown`.
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

  /** Queues a command. If too many commands are waiting, refuses the caller and returns false. */
  queue(command: LedgerCommand, caller: Caller): boolean {
    const { length } = this.#queue.waiting
    const queued = this.#queue.queuedOf(command, caller)
    const takes = length < this.#options.limits.queuedPerOrganizationMax
    if (takes) this.#queue.waiting.push(queued)
    else queued.reject(new LedgerUnavailable(`${length} calls of this organization are already waiting`))
    return takes
  }

  answer(found: Found): void {
    for (const { balance } of this.#queue.answer(found))
      this.#options.reports.balance(this.#organizationId, balance)
  }

  /** Called when the log has accepted an append. */
  works(): void {
    this.#options.reports.appended()
    this.#options.away.works()
    this.#trouble.works()
  }

  /** Answers the callers of a batch, which must be durable or have no events. */
  settle({ decided, refused }: Batch): void {
    for (const { queued, committed } of decided) queued.resolve(committed)
    for (const { queued, error } of refused) queued.reject(error)
    const last = decided.at(-1)
    if (last !== undefined) this.#options.reports.balance(this.#organizationId, last.committed.balance)
  }

  /** Logs a failure of the event log as part of an outage. */
  failed(cause: unknown): void {
    if (cause instanceof Unavailable || cause instanceof UnknownOutcome) this.#options.away.failed(cause)
    else this.#trouble.failed(cause)
  }

  /** Refuses the callers of commands that were not written and never will be. */
  refuse(commands: readonly Queued[], cause: unknown): void {
    if (commands.length === 0) return
    this.failed(cause)
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause })
    for (const queued of commands) queued.reject(error)
  }

  /** Answers the callers of commands that might have been written. */
  leaveUnknown(commands: readonly Queued[], cause: unknown): void {
    const error = new LedgerOutcomeUnknown(
      'it could not be determined in time whether the command was written',
      {
        cause,
      },
    )
    for (const queued of commands) {
      queued.gaveUp = true
      queued.reject(error)
    }
  }

  /**
   * Answers overdue callers, even if their commands are in progress. While the log does not answer, also answers all callers whose
   * commands are not decided yet.
   */
  refuseLate(underWay: readonly Queued[], nowMs: number): void {
    const { limits, gate } = this.#options
    const { callerWaitMaxMs } = limits
    const isLate = ({ queuedAtMs, gaveUp, command }: Queued): boolean =>
      !gaveUp && nowMs - queuedAtMs >= Math.min(callerWaitMaxMs, command.waitMaxMs ?? callerWaitMaxMs)
    const isShut = typeof gate?.shutForMs() === 'number'
    const late = new Unavailable('the event log did not answer in time')
    // A command that is not decided yet was not sent, unless it repeats a command that was.
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
