import type { Logger } from 'pino'
import type { MicroCredits } from '../../billing/money.ts'
import type { Gate } from '../../concurrency/gate.ts'
import type { Outage } from '../../event-log/outage.ts'
import type { EventLog } from '../../event-log/port.ts'
import type { Decide } from './batch.ts'
import type { Competition } from './competition.ts'
import type { AccountSnapshot } from './reader.ts'

/** The parts of a ledger, and its limits. */

export type LedgerLimits = {
  readonly batchCommandsMax: number
  readonly batchBytesMax: number
  readonly queuedPerOrganizationMax: number
  readonly accountsMax: number
  /** How long a known failure is retried before the batch is refused. */
  readonly unavailableRetryMs: number
  /**
   * How long an append with an unknown outcome is sent again before its place is decided: long enough for a lost connection to be made
   * again. An engine's append deadline (4 s), `placeReadMs` and the same deadline for the fence together are shorter than
   * `callerWaitMaxMs`.
   */
  readonly unknownRetryMs: number
  readonly retryPauseMs: number
  readonly readPageMax: number
  /** How long one read may take. */
  readonly readDeadlineMs: number
  /** How long reading the place of a batch may take. */
  readonly placeReadMs: number
  /** The longest that a caller waits for an answer. Callers of a call add at most two seconds to it. */
  readonly callerWaitMaxMs: number
  /** How long a process that stops waits for undecided outcomes. Longer than `callerWaitMaxMs`. */
  readonly drainMaxMs: number
  /** How often in a row an append may be refused although the ledger holds nothing new. */
  readonly idleConflictsMax: number
}

export const ledgerLimits: LedgerLimits = {
  batchCommandsMax: 256,
  batchBytesMax: 512 * 1024,
  queuedPerOrganizationMax: 5_000,
  accountsMax: 10_000,
  unavailableRetryMs: 2_000,
  unknownRetryMs: 3_000,
  retryPauseMs: 50,
  readPageMax: 1_000,
  readDeadlineMs: 5_000,
  placeReadMs: 1_500,
  callerWaitMaxMs: 10_000,
  drainMaxMs: 12_000,
  idleConflictsMax: 3,
}

/** `now` is the time of day. Durations are measured with `monotonic`, which no one sets back; default: `now`. */
type LedgerClock = { now(): number; monotonic?(): number }

export type LedgerOptions = {
  readonly eventLog: EventLog
  readonly snapshot: AccountSnapshot
  readonly logger: Logger
  readonly clock: LedgerClock
  readonly limits?: Partial<LedgerLimits>
  readonly observe?: LedgerObserver
  /** While it is shut, no new command is accepted and no waiting command is decided. Appends that were sent are awaited. */
  readonly gate?: Pick<Gate, 'refuses' | 'shutForMs'>
  /** Tells other processes that this one loses its appends to a ledger. */
  readonly competition?: Pick<Competition, 'tell'>
  /** For the pauses between appends if other processes append too. Default: `Math.random`. */
  readonly random?: () => number
  /** The rules; a test may replace them. */
  readonly decide?: Decide
}

/** Reports for monitoring; every member is optional. */
export type LedgerObserver = {
  batch?(commands: number, events: number, ms: number): void
  conflict?(): void
  unknownOutcome?(): void
  fence?(): void
  reversal?(): void
}

export type WriterOptions = LedgerOptions & {
  readonly limits: LedgerLimits
  readonly reports: WriterReports
  /** The event log does not answer, or takes no appends: the same for every organization, and logged once. */
  readonly away: Outage
}

/** What a writer reports to the ledger it belongs to. */
export type WriterReports = {
  /** The event log no longer holds what this process wrote or read: nothing it says can be trusted any more. */
  rewritten(error: Error): void
  appended(): void
  /** An append was refused for good, its outcome stayed unknown, or what is in its place cannot be read. */
  notAppended(error: unknown): void
  /** A caller was given this balance. */
  balance(organizationId: string, balance: MicroCredits): void
}

/** The ledger cannot take the command now. It was not written and can never be: the caller may try again. */
export class LedgerUnavailable extends Error {
  override name = 'LedgerUnavailable'
}

/** The command may have been written or not, or may still be written. The same command with the same key finds out. */
export class LedgerOutcomeUnknown extends Error {
  override name = 'LedgerOutcomeUnknown'
}

/** For `catch`. Read models or event log failed: the caller is asked to come back. */
export const cannotBeRead = (cause: unknown): never => {
  throw new LedgerUnavailable('the ledger cannot be read now', { cause })
}
