import type { Logger } from 'pino'
import type { MicroCredits } from '../../billing/money.ts'
import { within } from '../../concurrency/deadline.ts'
import { createOutage } from '../../concurrency/outage.ts'
import { appendNext } from '../../event-log/append-next.ts'
import { type EventLog, LogRewritten, Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import { operatorStream } from '../../events/streams.ts'
import { type Account, balanceOf } from '../account.ts'
import { type Committed, type LedgerCommand, LedgerUnavailable } from '../command.ts'
import { type Figures, type FiguresQuestion, figuresOf } from '../figures.ts'
import { type LedgerLimits, type LedgerOptions, ledgerLimits, type WriterReports } from './options.ts'
import {
  createReservations,
  type ReservationMade,
  type ReservationRequest,
  reserveOn,
} from './reservations.ts'
import { Writer } from './writer.ts'
import { isAtRest } from './writer-states.ts'

/**
 * The ledger protocol writes decisions about an organization's credits as events. With any number of processes, no event is lost or
 * written twice, and no account is overdrawn. See src/guides/finance.md, "How is a ledger written?".
 */

/** How often overdue callers are refused while work is in progress. */
const lateCheckMs = 500

export type Ledger = {
  /**
   * Resolves when the command's events are durable. Throws `CommandRefused` or `LedgerUnavailable` if they were not written and never
   * will be, and `LedgerOutcomeUnknown` if the outcome is not known in time.
   */
  submit(organizationId: string, command: LedgerCommand): Promise<Committed>
  /** Account figures for checks before a call is recorded. Fast enough for refused calls. */
  figures(organizationId: string, question: FiguresQuestion): Promise<Figures>
  /** Reserves the highest cost of a call, in addition to what other calls in progress reserve. */
  reserve(organizationId: string, request: ReservationRequest): Promise<ReservationMade>
  /** The current account, read from the log. */
  account(organizationId: string): Promise<Account>
  /** The account in the memory of this process, which must not be changed. Read from the log only if it is unknown. */
  lastSeen(organizationId: string): Promise<Account>
  /** The reason why nothing can be written, or null. The failure `rewritten` lasts until the process is restarted. */
  failure(): LedgerFailure | null
  /** Refuses everything from now on. Must be called if the event log has lost events that were read from it. */
  giveUp(error: Error): void
  /** The last balance known to this process, for callers that cannot wait for the log. Undefined for an unknown ledger. */
  knownBalance(organizationId: string): MicroCredits | undefined
  /**
   * Resolves when no command is queued or in progress and no reversal is due. If this takes longer than `drainMaxMs`, throws, and logs
   * the calls that may have been charged although their callers were answered that the outcome is unknown.
   */
  drain(): Promise<void>
  /** Must be called when another process reports that its appends to this ledger conflict repeatedly. */
  competed(organizationId: string): void
}

export type LedgerFailure = { readonly kind: 'rewritten' | 'appends_fail'; readonly error: Error }

const rewrittenMessage =
  'ledger: the event log has lost events that this process has read, so calls are no longer accepted. It was restored from a copy, or a standby took over without its last events: see src/guides/backup.md, "What do I do if the event log has been restored from an older copy?"'

export const createLedger = (options: LedgerOptions): Ledger => {
  const limits = { ...ledgerLimits, ...options.limits }
  const { eventLog, logger, clock, gate } = options
  const balances = new Map<string, MicroCredits>()
  const reservations = createReservations()
  const tell = (organizationId: string, balance: MicroCredits): void => {
    if (balances.size >= limits.accountsMax && !balances.has(organizationId)) balances.clear()
    balances.set(organizationId, balance)
  }
  let rewritten: Error | undefined
  const giveUp = (error: Error): void => {
    if (rewritten === undefined) logger.fatal({ err: error }, rewrittenMessage)
    rewritten ??= error
  }
  const appends = createAppendWatch({ eventLog, logger, now: clock.now })
  const writers = createWriters(
    { ...options, limits },
    {
      rewritten: giveUp,
      appended: appends.succeeded,
      notAppended: (error) => {
        if (error instanceof LogRewritten) giveUp(error)
        if (error instanceof Unavailable || error instanceof UnknownOutcome) appends.failed(error)
      },
      balance: tell,
    },
  )
  /** Sends a request to the organization's writer. Rejects if the event log has lost events that this process has read. */
  const asking = <Value>(organizationId: string, ask: (writer: Writer) => Promise<Value>): Promise<Value> =>
    rewritten === undefined
      ? ask(writers.of(organizationId))
      : Promise.reject(
          new LedgerUnavailable('the event log has lost events that this process has read', {
            cause: rewritten,
          }),
        )

  /** Like `asking`, but also rejects while the event log does not answer. */
  const askingLog = <Value>(
    organizationId: string,
    ask: (writer: Writer) => Promise<Value>,
  ): Promise<Value> =>
    typeof gate?.refuses() === 'number'
      ? Promise.reject(new LedgerUnavailable('the event log does not answer'))
      : asking(organizationId, ask)

  const account = (organizationId: string) => askingLog(organizationId, (writer) => writer.current())
  const lastSeen = async (organizationId: string): Promise<Account> => {
    const isKnown = writers.known(organizationId)?.knows() === true
    const seen = await (isKnown ? asking : askingLog)(organizationId, (writer) => writer.lastSeen())
    // The balance is normally known from the last command, unless this process has not written one for this organization yet.
    if (!balances.has(organizationId)) tell(organizationId, balanceOf(seen, Date.now()))
    return seen
  }

  return {
    submit: (organizationId, command) => {
      writers.checkLate()
      return askingLog(organizationId, (writer) => writer.submit(command))
    },
    figures: async (organizationId, question) => {
      const found = await (question.fresh === true ? account(organizationId) : lastSeen(organizationId))
      return figuresOf(found, question, reservations.held(organizationId))
    },
    reserve: async (id, request) => reserveOn(reservations, await lastSeen(id), request),
    account,
    lastSeen,
    competed: (organizationId) => writers.known(organizationId)?.competed(),
    knownBalance: (organizationId) => (rewritten === undefined ? balances.get(organizationId) : undefined),
    failure: () => {
      if (rewritten !== undefined) return { kind: 'rewritten', error: rewritten }
      const failing = appends.failure()
      return failing === null ? null : { kind: 'appends_fail', error: failing }
    },
    giveUp,
    drain: writers.drain,
  }
}

const owedMessage =
  'ledger: the process stops before the outcome of these calls is settled; they were answered with 504 but can have been charged, so reverse their charges with "ledger reverse --requests FILE"'

const createWriters = (
  options: LedgerOptions & { readonly limits: LedgerLimits },
  reports: WriterReports,
) => {
  const { logger, limits } = options
  const writers = new Map<string, Writer>()
  const away = createOutage({ logger, what: 'ledger: writing', level: 'error' })
  const busy = (): Writer[] => [...writers.values()].filter(({ state }) => !isAtRest(state))
  let checking: NodeJS.Timeout | undefined
  /** Answers overdue callers, even if the event log does not respond at all. */
  const checkLate = (): void => {
    checking ??= setTimeout(() => {
      checking = undefined
      const late = busy()
      for (const writer of late) writer.refuseLate()
      if (late.length > 0) checkLate()
    }, lateCheckMs)
    checking.unref()
  }
  return {
    checkLate,
    known: (organizationId: string): Writer | undefined => writers.get(organizationId),
    of: (organizationId: string): Writer => {
      const known = writers.get(organizationId)
      if (known !== undefined) {
        known.used = true
        return known
      }
      if (writers.size >= limits.accountsMax) forgetOne(writers)
      const writer = new Writer(organizationId, { ...options, reports, away })
      writers.set(organizationId, writer)
      return writer
    },
    drain: async (): Promise<void> => {
      const settled = async (): Promise<true> => {
        do await Promise.all([...writers.values()].map((writer) => writer.settled()))
        while (busy().length > 0)
        return true
      }
      const isSettled = await within(settled(), { waitMs: limits.drainMaxMs }, () => false)
      const owed = [...writers].filter(([, writer]) => writer.owed().length > 0)
      for (const [organizationId, writer] of owed)
        logger.error({ organizationId, requestIds: writer.owed() }, owedMessage)
      if (!isSettled || owed.length > 0)
        throw new Error('the event log did not confirm in time whether the last appends were written')
    },
  }
}

/**
 * Removes the oldest writer that was not used since the last search and can be removed without losing anything. If it is needed again, its account
 * is loaded again. Used writers become the newest during a search and not with every call, because V8 rebuilds a map every few calls if each call
 * deletes an entry.
 */
const forgetOne = (writers: Map<string, Writer>): void => {
  // Writers that become the newest are visited again, and are then no longer marked as used.
  for (const [id, writer] of writers) {
    if (!writer.used && !writer.forgettable()) continue
    writers.delete(id)
    if (!writer.used) return
    writer.used = false
    writers.set(id, writer)
  }
}

/**
 * Watches whether the event log accepts appends. If a disk is full, reads succeed but appends fail. The process then receives no calls, so
 * it regularly tries to append an event. That event records the time since which appends failed.
 */
type AppendWatch = {
  failed(error: Error): void
  succeeded(): void
  /** The reason why appends fail, or null. */
  failure(): Error | null
}

const tryMs = 5_000

const createAppendWatch = ({
  eventLog,
  logger,
  now,
}: {
  eventLog: Pick<EventLog, 'append' | 'read'>
  logger: Logger
  now: () => number
}): AppendWatch => {
  let failing: { readonly since: string; error: Error } | undefined
  let trying: NodeJS.Timeout | undefined

  const succeeded = (): void => {
    if (failing === undefined) return
    logger.info({ since: failing.since }, 'ledger: appends succeed again')
    failing = undefined
    clearTimeout(trying)
  }

  const tryLater = (since: string): void => {
    trying = setTimeout(() => {
      const at = new Date(now()).toISOString()
      appendNext(eventLog, operatorStream, [
        encodeEvent(
          { type: 'AppendsResumed', data: { failing_since: since } },
          {
            id: eventIdOf(operatorStream, `appends-resumed/${since}/${process.pid}`, 0),
            actor: 'system',
            effectiveAt: at,
          },
        ),
      ]).then(succeeded, () => {
        if (failing?.since === since) tryLater(since)
      })
    }, tryMs)
    trying.unref()
  }

  return {
    succeeded,
    failure: () => failing?.error ?? null,
    failed: (error) => {
      if (failing !== undefined) {
        failing.error = error
        return
      }
      failing = { since: new Date(now()).toISOString(), error }
      logger.fatal({ err: error }, 'ledger: appends fail; no calls can be answered until they succeed')
      tryLater(failing.since)
    },
  }
}
