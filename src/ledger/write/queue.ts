import { createOutage, type Outage } from '../../event-log/outage.ts'
import { Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { eventIdOf } from '../../event-log/stored-event.ts'
import type { Account } from '../account.ts'
import type { Committed, LedgerCommand } from '../command.ts'
import type { Batch } from './batch.ts'
import { LedgerOutcomeUnknown, LedgerUnavailable, type WriterOptions } from './options.ts'
import type { Found, LedgerReader } from './reader.ts'

/** A command on its way into a ledger, and its caller. */
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
  /** Its caller got the answer that the outcome is unknown, and no longer waits. */
  gaveUp: boolean
}

type Caller = Pick<Queued, 'resolve' | 'reject' | 'queuedAtMs'>

/** The commands of one organization that wait to be decided, in the order in which they arrived. */
export class CommandQueue {
  readonly #organizationId: string
  /** Taken from the front by `decideBatch`. */
  readonly waiting: Queued[] = []

  constructor(organizationId: string) {
    this.#organizationId = organizationId
  }

  /** Not in the queue yet. */
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

  /** Answers commands that are in the ledger already: appending them again would charge twice. Returns the answers. */
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

  /** Whether a command may be in a part of the ledger that was not looked through for it. */
  mayHold({ revision }: Account): boolean {
    return this.waiting.some(({ absentUpTo }) => absentUpTo < revision)
  }

  /** Reads the part of the ledger, up to the account, that was not looked through for the commands that wait now. */
  async find(account: Account, reader: LedgerReader, atMs: number): Promise<Found> {
    const after = Math.min(...this.waiting.map(({ absentUpTo }) => absentUpTo))
    const upTo = account.revision
    const found: Found =
      after >= upTo ? new Map() : await reader.findBetween(account, { from: after + 1, to: upTo, atMs })
    this.lookedThrough(after, upTo)
    return found
  }

  /** The ledger was read from behind `after` up to `upTo`: commands found in it do not stay in the queue. */
  lookedThrough(after: number, upTo: number): void {
    for (const queued of this.waiting)
      if (queued.absentUpTo >= after && queued.absentUpTo < upTo) queued.absentUpTo = upTo
  }
}

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
