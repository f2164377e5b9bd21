import type { Logger } from 'pino'
import type { MicroCredits } from '../../billing/money.ts'
import type { Gate } from '../../concurrency/gate.ts'
import type { Outage } from '../../concurrency/outage.ts'
import type { EventLog } from '../../event-log/port.ts'
import { LedgerUnavailable } from '../command.ts'
import type { LotPlaces } from '../explain/lots-drawn.ts'
import type { Decide } from './batch.ts'
import type { Competition } from './conflict-notices.ts'
import type { AccountSnapshot } from './reader.ts'

export const ledgerLimits = {
  batchCommandsMax: 256,
  batchBytesMax: 512 * 1024,
  queuedPerOrganizationMax: 5_000,
  accountsMax: 10_000,
  /** How long a failed append is retried before the batch is refused. */
  unavailableRetryMs: 2_000,
  /**
   * How long an append with an unknown outcome is repeated before its place is decided, which is enough to restore a lost connection. Together
   * with an engine's append deadline (4 s), `placeReadMs` and the append deadline of the fence, it must be less than `callerWaitMaxMs`.
   */
  unknownRetryMs: 3_000,
  retryPauseMs: 50,
  readPageMax: 1_000,
  readDeadlineMs: 5_000,
  placeReadMs: 1_500,
  /** The maximum time that a caller waits for an answer. The rest of an API call adds at most two seconds. */
  callerWaitMaxMs: 10_000,
  /** How long a shutdown waits for unknown outcomes. Must be longer than `callerWaitMaxMs`. */
  drainMaxMs: 12_000,
  /** The maximum number of consecutive appends that the log can refuse although the ledger contains no new event. */
  idleConflictsMax: 3,
}

export type LedgerLimits = Readonly<typeof ledgerLimits>

/** `now` is the time of day. `monotonic` is a clock for durations, which is never set back. The default is `now`. */
type LedgerClock = { now(): number; monotonic?(): number }

export type LedgerOptions = {
  readonly eventLog: EventLog
  readonly snapshot: AccountSnapshot
  /** Finds the lots to which a reversal returns credits. By default, the ledger is read from its start. */
  readonly lotPlaces?: LotPlaces
  readonly logger: Logger
  readonly clock: LedgerClock
  readonly limits?: Partial<LedgerLimits>
  readonly observe?: LedgerObserver
  /** While the gate is shut, commands are neither accepted nor decided, but appends that were already sent are awaited. */
  readonly gate?: Pick<Gate, 'refuses' | 'shutForMs'>
  /** Notifies other processes that this process's appends to a ledger conflict repeatedly. */
  readonly competition?: Pick<Competition, 'notify'>
  /** Varies the pauses between appends while other processes append to the same ledger. The default is `Math.random`. */
  readonly random?: () => number
  /** The ledger's rules, which a test can replace. */
  readonly decide?: Decide
}

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
  /** Logs outages of the event log. Shared by all organizations, so that an outage is logged only once. */
  readonly away: Outage
}

export type WriterReports = {
  /** Called if the event log has lost events that this process has written or read, so that it cannot be trusted. */
  rewritten(error: Error): void
  appended(): void
  /** Called if an append has failed permanently, if its outcome stays unknown, or if its place cannot be read. */
  notAppended(error: unknown): void
  /** Called with the balance in each answer. */
  balance(organizationId: string, balance: MicroCredits): void
}

/** A handler for `catch` that turns a failure of the read models or the event log into `LedgerUnavailable`. */
export const cannotBeRead = (cause: unknown): never => {
  throw new LedgerUnavailable('the ledger cannot be read now', { cause })
}
