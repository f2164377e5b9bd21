import { LogRewritten, Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { ledgerStream } from '../../events/streams.ts'
import { type Account, draftOf } from '../account.ts'
import type { Committed, LedgerCommand } from '../command.ts'
import { decideCommand } from '../decide.ts'
import {
  appendBatch,
  type Batch,
  type BatchAppend,
  commandsOf,
  decideBatch,
  decidePlace,
  fenceOf,
  isUnrepeatable,
  waitingOf,
} from './batch.ts'
import { cannotBeRead, type WriterOptions } from './options.ts'
import { Callers, CommandQueue, type Queued } from './queue.ts'
import { createReader, type LedgerReader } from './reader.ts'
import { Reversals } from './reversals.ts'
import { isAtRest, nextOf, type StateKind, type WriterEvent, type WriterState } from './writer-states.ts'

/**
 * The writer of one organization in one process. Commands that arrive during an append form the next batch. A batch is appended at exactly
 * the revision for which it was decided, so the stream itself is the lock.
 */
export class Writer {
  /** Whether the writer was used since the last search for a writer that can be removed. */
  used = false
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #reader: LedgerReader
  readonly #appending: BatchAppend
  readonly #reversals: Reversals
  /** The request ids of calls without an Idempotency-Key whose outcome can no longer be determined by this process. */
  readonly #undecidable: string[] = []
  readonly #callers: Callers
  readonly #queue: CommandQueue
  readonly #tail: Tail
  #state: WriterState = { kind: 'unloaded' }
  readonly #pacing: Pacing
  #asking: PromiseWithResolvers<Account> | undefined
  #settling: PromiseWithResolvers<void> | undefined

  constructor(organizationId: string, options: WriterOptions) {
    const { eventLog, limits, clock, observe } = options
    this.#organizationId = organizationId
    this.#options = options
    this.#queue = new CommandQueue(organizationId)
    this.#reader = createReader(organizationId, options)
    this.#pacing = createPacing(options.random ?? Math.random)
    this.#callers = new Callers(organizationId, options, this.#queue)
    this.#reversals = new Reversals(organizationId, options, (command) => this.submit(command))
    this.#tail = new Tail(organizationId, options, {
      reader: this.#reader,
      queue: this.#queue,
      callers: this.#callers,
    })
    this.#appending = {
      eventLog,
      stream: ledgerStream(organizationId),
      reader: this.#reader,
      limits,
      now: clock.monotonic ?? clock.now,
      observe,
    }
  }

  get state(): StateKind {
    return this.#state.kind
  }

  submit(command: LedgerCommand): Promise<Committed> {
    return new Promise((resolve, reject) => {
      const queuedAtMs = this.#appending.now()
      if (this.#callers.queue(command, { resolve, reject, queuedAtMs })) this.#on('submit')
    })
  }

  #underWay(): Queued[] {
    return 'batch' in this.#state ? commandsOf(this.#state.batch) : []
  }

  /** The current account, read from the log. */
  async current(): Promise<Account> {
    const freshly = this.#state.kind === 'unloaded'
    const fresh = draftOf(await this.lastSeen())
    if (freshly) return fresh
    await this.#reader.catchUp(fresh).catch((error: unknown) => {
      if (error instanceof LogRewritten) this.#options.reports.rewritten(error)
      return cannotBeRead(error)
    })
    // The account is kept, so that the same events are not read again for every request.
    if (this.#state.kind === 'idle' && this.#state.account.revision < fresh.revision) {
      this.#pacing.competed(this.#appending.now())
      this.#state = { kind: 'idle', account: draftOf(fresh) }
    }
    return fresh
  }

  /** The account in memory, which must not be changed. Read from the log only if it is unknown. */
  lastSeen(): Promise<Account> {
    return this.#known().catch(cannotBeRead)
  }

  /** Whether the account is in memory, so that `lastSeen` does not read the log. */
  knows(): boolean {
    return 'account' in this.#state
  }

  /** The request ids of calls without an Idempotency-Key whose outcome is unknown, or whose charge must still be reversed. */
  owed(): string[] {
    return [...unrepeatableOf(this.#underWay()), ...this.#reversals.requestIds(), ...this.#undecidable]
  }

  #isSettled(): boolean {
    return isAtRest(this.#state.kind) && this.#reversals.requestIds().length === 0
  }

  /** Whether the writer can be removed without losing anything. */
  forgettable(): boolean {
    return this.#isSettled() && this.#undecidable.length === 0
  }

  /** Resolves when no work is queued or in progress. */
  async settled(): Promise<void> {
    while (!this.#isSettled()) {
      await this.#reversals.settled()
      if (isAtRest(this.#state.kind)) continue
      this.#settling ??= Promise.withResolvers()
      await this.#settling.promise
    }
  }

  refuseLate(): void {
    this.#callers.refuseLate(this.#underWay(), this.#appending.now())
  }

  competed(): void {
    this.#pacing.competed(this.#appending.now())
  }

  /** Resolves with the account, which is read if it is unknown. */
  #known(): Promise<Account> {
    if ('account' in this.#state) return Promise.resolve(this.#state.account)
    this.#asking ??= Promise.withResolvers()
    const { promise } = this.#asking
    this.#on('ask')
    return promise
  }

  /** Changes the state according to the table. `account` is the account after the event. */
  #on(event: WriterEvent, account = 'account' in this.#state ? this.#state.account : undefined): void {
    const next = nextOf(this.#state.kind, event)
    if (next === this.#state.kind) return
    if (next === 'restart') {
      if (this.#queue.waiting.length > 0 || this.#asking !== undefined) this.#load()
      else this.#rest({ kind: 'unloaded' })
    } else if (next === 'loading') this.#load()
    else if (account === undefined) throw new Error(`ledger: ${next} after ${event} without an account`)
    else if (next === 'gathering') {
      this.#state = { kind: 'gathering', account }
      setImmediate(() => this.#on('turn_over'))
    } else if (next === 'catching_up') this.#catchUp(account)
    else if (next === 'deciding' && 'batch' in this.#state) this.#decide(account, this.#state.batch)
    else this.#onwards(account, event === 'looked')
  }

  #rest(state: WriterState & { kind: 'unloaded' | 'idle' }): void {
    this.#state = state
    this.#settling?.resolve()
    this.#settling = undefined
  }

  #load(): void {
    this.#state = { kind: 'loading' }
    this.#reader.load().then(
      ({ account, found }) => {
        this.#callers.answer(found)
        const asking = this.#asking
        this.#asking = undefined
        this.#on('loaded', account)
        asking?.resolve(account)
      },
      (error: unknown) => this.#failed(error),
    )
  }

  /** Starts the next batch, or becomes idle. `looked`: the ledger has just been searched for the queued commands. */
  #onwards(account: Account, looked: boolean): void {
    const { decide = decideCommand } = this.#options
    const { stream } = this.#appending
    const { limits } = this.#options
    for (;;) {
      const [first] = this.#queue.waiting
      const mayBeThere = looked
        ? first !== undefined && first.absentUpTo < account.revision
        : this.#queue.mayHold(account)
      if (mayBeThere) {
        this.#look(account)
        return
      }
      if (first === undefined) {
        this.#rest({ kind: 'idle', account })
        return
      }
      const waitMs = this.#pacing.waitMs(this.#appending.now())
      if (waitMs > 0) {
        this.#state = { kind: 'gathering', account }
        setTimeout(() => this.#on('turn_over'), waitMs)
        return
      }
      const nowMs = this.#options.clock.now()
      const batch = decideBatch(account, this.#queue.waiting, { stream, limits, decide, nowMs })
      if (batch.events.length > 0) {
        this.#write(account, batch)
        return
      }
      this.#callers.settle(batch)
    }
  }

  #look(account: Account): void {
    this.#state = { kind: 'looking', account }
    this.#tail.look(account).then(
      () => this.#on('looked'),
      (error: unknown) => {
        if (error instanceof LogRewritten) this.#options.reports.rewritten(error)
        this.#failed(error)
      },
    )
  }

  #write(account: Account, batch: Batch): void {
    this.#state = { kind: 'writing', account, batch }
    appendBatch(batch, this.#appending).then(
      (outcome) => this.#decided(batch, outcome),
      (error: unknown) => {
        this.#options.reports.notAppended(error)
        if (error instanceof UnknownOutcome) return this.#on('unknown')
        this.#callers.refuse(commandsOf(batch), error)
        this.#on('failed')
      },
    )
  }

  /** Finds out whether the batch was written. Nothing else is written in the meantime, so callers of other commands can safely be refused. */
  #decide(account: Account, batch: Batch): void {
    this.#state = { kind: 'deciding', account, batch }
    const fence = fenceOf(batch, account, this.#appending.stream, this.#options.clock.now())
    const failed = (error: unknown): void => {
      this.#options.reports.notAppended(error)
      this.#callers.failed(error)
    }
    decidePlace(batch, fence, { ...this.#appending, failed }).then(
      (outcome) => this.#decided(batch, outcome),
      (error: unknown) => {
        failed(error)
        this.#callers.leaveUnknown(commandsOf(batch), error)
        this.#undecidable.push(...unrepeatableOf(commandsOf(batch)))
        this.#on('failed')
      },
    )
  }

  #decided(batch: Batch, outcome: 'written' | 'conflict' | 'fenced'): void {
    if (outcome === 'written') {
      this.#written(batch)
      return
    }
    if (outcome === 'conflict' && this.#pacing.lost(this.#appending.now()).notify)
      this.#options.competition?.notify(this.#organizationId)
    this.#queue.waiting.unshift(...waitingOf(batch))
    this.#on('conflict')
  }

  #written(batch: Batch): void {
    const { base, decided, draft, byFirstEventId } = batch
    this.#pacing.appended(this.#appending.now())
    this.#tail.works()
    this.#callers.works()
    this.#callers.answer(byFirstEventId)
    this.#queue.lookedThrough(base, draft.revision)
    this.#callers.settle(batch)
    for (const { queued, committed } of decided) if (queued.gaveUp) this.#reversals.written(queued, committed)
    this.#on('written', draft)
  }

  #catchUp(account: Account): void {
    this.#state = { kind: 'catching_up', account }
    this.#tail.foldAfterConflict(account).then(
      () => this.#on('caught_up'),
      (error: unknown) => {
        this.#options.reports.notAppended(error)
        this.#failed(error)
      },
    )
  }

  /** Refuses all waiting callers, because their commands cannot be decided. */
  #failed(error: unknown): void {
    this.#callers.refuse(this.#queue.waiting.splice(0), error)
    const asking = this.#asking
    this.#asking = undefined
    this.#on('failed')
    asking?.reject(error)
  }
}

const unrepeatableOf = (commands: readonly Queued[]): string[] =>
  commands.flatMap(({ command }) => (isUnrepeatable(command) ? (command.requestId ?? []) : []))

type TailParts = {
  readonly reader: LedgerReader
  readonly queue: CommandQueue
  readonly callers: Callers
}

/**
 * Reads the end of a ledger between batches: folds the events of other processes, and answers the callers of queued commands that the
 * ledger already contains.
 */
class Tail {
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #parts: TailParts
  /** The number of consecutive appends that were refused although the ledger contained no new event. */
  #idleConflicts = 0

  constructor(organizationId: string, options: WriterOptions, parts: TailParts) {
    this.#organizationId = organizationId
    this.#options = options
    this.#parts = parts
  }

  /** Called when the log has accepted an append. */
  works(): void {
    this.#idleConflicts = 0
  }

  /** Folds the events of other processes into the account. */
  async fold(account: Account): Promise<void> {
    const { reader, queue } = this.#parts
    const after = account.revision
    this.#parts.callers.answer(await reader.catchUp(account))
    queue.lookedThrough(after, account.revision)
  }

  /** Like `fold`, after a refused append. Throws if the log repeatedly refuses appends although it contains no new event. */
  async foldAfterConflict(account: Account): Promise<void> {
    const { eventLog, logger, limits } = this.#options
    const after = account.revision
    // The batch was decided on a draft, so the account contains only events that are in the stream.
    await this.fold(account)
    const { revision } = account
    this.#idleConflicts = revision > after ? 0 : this.#idleConflicts + 1
    if (this.#idleConflicts < limits.idleConflictsMax) return
    this.#idleConflicts = 0
    const engine = await eventLog.lastRevision(ledgerStream(this.#organizationId))
    logger.fatal(
      { organizationId: this.#organizationId, revision, engine },
      'ledger: the event log refuses appends after the last event that can be read, so calls of this organization are refused; run "ledger verify"',
    )
    throw new Unavailable('the event log refuses appends after the last event of the ledger')
  }

  /** Searches the ledger for queued commands before a batch. */
  async look(account: Account): Promise<void> {
    const { reader, queue, callers } = this.#parts
    if (queue.mayHold(account)) callers.answer(await queue.find(account, reader, this.#options.clock.now()))
  }
}

/**
 * Lets processes that append to one ledger at the same time take turns.
 *
 * Of several appends at the same revision, only the first one succeeds. Its process has an advantage at the next revision, because the
 * others must first read the new events. Therefore, a process pauses after each successful append while others append too, but not after a
 * conflict. Commands that arrive during a pause are part of the next batch.
 */
type Pacing = {
  /** Must be called when another process has appended to the ledger, or reports that it is trying to append. */
  competed(nowMs: number): void
  appended(nowMs: number): void
  /**
   * Must be called when an append has conflicted and is retried immediately. `notify`: whether to notify the other processes, which is so if the
   * append before it conflicted too.
   */
  lost(nowMs: number): { readonly notify: boolean }
  /** How long the next append must wait. */
  waitMs(nowMs: number): number
}

/** How long a process continues to pause after an append or a notice of another process. */
const competitionMs = 2_000
const pauseMinMs = 1
const pauseMaxMs = 6
/** Some pauses are this long, so that even a process with a slow connection to the log has time to read the ledger and to append. */
const longPauseMs = 60
const longPauseEvery = 8
/** How often a process notifies other processes of its conflicts. */
const notifyEveryMs = 500

/** Plans the pauses between appends. `random` is like `Math.random`. */
export function createPacing(random: () => number): Pacing {
  let competedUntilMs = Number.NEGATIVE_INFINITY
  let notBeforeMs = Number.NEGATIVE_INFINITY
  let notifiedMs = Number.NEGATIVE_INFINITY
  let lostBefore = false
  const pauseMs = (): number =>
    random() * longPauseEvery < 1 ? longPauseMs : pauseMinMs + random() * (pauseMaxMs - pauseMinMs)
  const competed = (nowMs: number): void => {
    competedUntilMs = nowMs + competitionMs
  }
  return {
    competed,
    appended: (nowMs) => {
      lostBefore = false
      if (nowMs < competedUntilMs) notBeforeMs = nowMs + pauseMs()
    },
    lost: (nowMs) => {
      competed(nowMs)
      notBeforeMs = nowMs
      // Most appends succeed after one conflict, and a notice wakes every process.
      const notify = lostBefore && nowMs - notifiedMs >= notifyEveryMs
      lostBefore = true
      if (notify) notifiedMs = nowMs
      return { notify }
    },
    waitMs: (nowMs) => Math.max(0, notBeforeMs - nowMs),
  }
}
