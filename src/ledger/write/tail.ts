import { Unavailable } from '../../event-log/port.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Account } from '../account.ts'
import type { Callers } from './callers.ts'
import type { WriterOptions } from './options.ts'
import type { CommandQueue } from './queue.ts'
import type { LedgerReader, Loaded } from './reader.ts'

type TailParts = {
  readonly reader: LedgerReader
  readonly queue: CommandQueue
  readonly callers: Callers
}

/**
 * The end of a ledger, as a writer reads it between its batches: events of other processes, and commands that may be there
 * although they wait here. The callers of commands that are found are answered.
 */
export class Tail {
  readonly #organizationId: string
  readonly #options: WriterOptions
  readonly #parts: TailParts
  /** Appends refused in a row although the ledger holds nothing new. */
  #idleConflicts = 0

  constructor(organizationId: string, options: WriterOptions, parts: TailParts) {
    this.#organizationId = organizationId
    this.#options = options
    this.#parts = parts
  }

  /** The account was read. */
  loaded({ found }: Pick<Loaded, 'found'>): void {
    this.#parts.callers.answer(found)
  }

  /** The log took an append. */
  works(): void {
    this.#idleConflicts = 0
  }

  /** Folds what others have appended into the account. */
  async fold(account: Account): Promise<void> {
    const { reader, queue } = this.#parts
    const after = account.revision
    this.#parts.callers.answer(await reader.catchUp(account))
    queue.lookedThrough(after, account.revision)
  }

  /**
   * The same after an append was refused. If nothing new is there although the engine refused it, the log contradicts itself. Throws
   * then, because trying again would never end.
   */
  async foldAfterConflict(account: Account): Promise<void> {
    const { eventLog, logger, limits } = this.#options
    const after = account.revision
    // The account is untouched by the draft: only what is in the stream is folded into it.
    await this.fold(account)
    const { revision } = account
    this.#idleConflicts = revision > after ? 0 : this.#idleConflicts + 1
    if (this.#idleConflicts < limits.idleConflictsMax) return
    this.#idleConflicts = 0
    const engine = await eventLog.lastRevision(ledgerStream(this.#organizationId))
    logger.fatal(
      { organizationId: this.#organizationId, revision, engine },
      'ledger: the event log refuses appends after the last event it shows; see "ledger verify". Calls of this organization are refused',
    )
    throw new Unavailable('the ledger cannot be appended to after its last event')
  }

  /** Ahead of a batch: queued commands may be in the ledger. */
  async look(account: Account): Promise<void> {
    const { reader, queue, callers } = this.#parts
    if (queue.mayHold(account)) callers.answer(await queue.find(account, reader, this.#options.clock.now()))
  }
}
