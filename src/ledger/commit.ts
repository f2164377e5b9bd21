import type { Account } from './account.ts'
import type { Committed, LedgerCommand } from './batch.ts'
import { createWriter, type LedgerLimits, type LedgerOptions, type Writer } from './writer.ts'

export { CommandRefused, type Committed, type LedgerCommand } from './batch.ts'
export {
  type AccountSnapshot,
  type LedgerLimits,
  type LedgerObserver,
  type LedgerOptions,
  LedgerUnavailable,
} from './writer.ts'

/**
 * The ledger protocol: how decisions about an organization's credits become events without a lost one, a double one
 * or an overdraft, across any number of processes. One writer per organization and process (`writer.ts`); see README,
 * "The ledger protocol".
 *
 * It is not a place for I/O of a call: commands arrive with everything they need.
 */

export const ledgerLimits: LedgerLimits = {
  batchCommandsMax: 256,
  batchBytesMax: 512 * 1024,
  queuedPerOrganizationMax: 5_000,
  accountsMax: 10_000,
  unavailableRetryMs: 2_000,
  unknownRetryMs: 15_000,
  retryPauseMs: 50,
  abandonedCheckMs: 5_000,
  readPageMax: 1_000,
}

export type Ledger = {
  /**
   * Resolves when the command's events are durable. Throws `CommandRefused`, or `LedgerUnavailable` when they are
   * known not to have been written or the log cannot be reached.
   */
  submit(organizationId: string, command: LedgerCommand): Promise<Committed>
  /** The account as the log has it now. */
  account(organizationId: string): Promise<Account>
  /** The account as this process last saw it: cheap enough for calls that are turned away. Not to be changed. */
  lastSeen(organizationId: string): Promise<Account>
  /** Resolves when nothing is queued or under way. */
  drain(): Promise<void>
}

export const createLedger = (options: LedgerOptions): Ledger => {
  const limits = { ...ledgerLimits, ...options.limits }
  const writers = new Map<string, Writer>()

  const writerOf = (organizationId: string): Writer => {
    const known = writers.get(organizationId)
    if (known !== undefined) return known
    if (writers.size >= limits.accountsMax) forgetOne(writers)
    const writer = createWriter(organizationId, { ...options, limits })
    writers.set(organizationId, writer)
    return writer
  }

  return {
    submit: (organizationId, command) => writerOf(organizationId).submit(command),
    account: (organizationId) => writerOf(organizationId).current(),
    lastSeen: (organizationId) => writerOf(organizationId).lastSeen(),
    drain: async () => {
      while ([...writers.values()].some((writer) => !writer.idle()))
        await Promise.all([...writers.values()].map((writer) => writer.settled()))
    },
  }
}

/** The one idle longest in order of arrival: what it forgets is loaded again when asked for. */
const forgetOne = (writers: Map<string, Writer>): void => {
  for (const [id, writer] of writers)
    if (writer.forgettable()) {
      writers.delete(id)
      return
    }
}
