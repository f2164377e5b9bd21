import { eventIdOf } from '../../event-log/event-id.ts'
import type { Account } from '../account.ts'
import type { Committed, LedgerCommand } from '../command.ts'
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

export type Caller = Pick<Queued, 'resolve' | 'reject' | 'queuedAtMs'>

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
