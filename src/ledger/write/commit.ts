import type { Logger } from 'pino'
import type { MicroCredits } from '../../billing/money.ts'
import { within } from '../../concurrency/deadline.ts'
import { appendNext } from '../../event-log/append-next.ts'
import { createOutage } from '../../event-log/outage.ts'
import { type EventLog, LogRewritten, Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import { operatorStream } from '../../events/streams.ts'
import { type Account, balanceOf } from '../account.ts'
import type { Committed, LedgerCommand } from '../command.ts'
import { type Figures, type FiguresQuestion, figuresOf } from '../figures.ts'
import {
  type LedgerLimits,
  type LedgerOptions,
  LedgerUnavailable,
  ledgerLimits,
  type WriterReports,
} from './options.ts'
import {
  createReservations,
  type ReservationMade,
  type ReservationRequest,
  reserveOn,
} from './reservations.ts'
import { createWriter, type Writer } from './writer.ts'
import { isAtRest } from './writer-states.ts'

export { CommandRefused, type Committed, type LedgerCommand } from '../command.ts'
export {
  type LedgerLimits,
  type LedgerObserver,
  type LedgerOptions,
  LedgerOutcomeUnknown,
  LedgerUnavailable,
  ledgerLimits,
} from './options.ts'
export type { AccountSnapshot } from './reader.ts'

/**
 * The ledger protocol: how decisions about an organization's credits become events without a lost one, a double one
 * or an overdraft, across any number of processes. One writer per organization and process (`writer.ts`); see
 * src/guides/finance.md, "How is a ledger written?".
 *
 * Calls do no I/O here: commands arrive with everything they need.
 */

/** How often callers who have waited too long are looked for, while anything is under way. */
const lateCheckMs = 500

export type Ledger = {
  /**
   * Resolves when the command's events are durable. Throws `CommandRefused` and `LedgerUnavailable` where they were not written and
   * never will be, and `LedgerOutcomeUnknown` where that is not known in time.
   */
  submit(organizationId: string, command: LedgerCommand): Promise<Committed>
  /** Account figures for checks before a call is recorded: cheap enough for calls that are refused. */
  figures(organizationId: string, question: FiguresQuestion): Promise<Figures>
  /** Holds the highest cost of a call, in addition to what other calls in progress hold. */
  reserve(organizationId: string, request: ReservationRequest): Promise<ReservationMade>
  /** The account as the log has it now. */
  account(organizationId: string): Promise<Account>
  /** The account as this process last saw it. Not to be changed. */
  lastSeen(organizationId: string): Promise<Account>
  /**
   * Why nothing can be written: appends fail now, or the event log was found to be another one, which remains until the
   * process is started again. Null while all is well.
   */
  failure(): LedgerFailure | null
  /** The event log no longer holds events that were read from it: every command and every look is refused from now on. */
  giveUp(error: Error): void
  /** The last balance known here; undefined for an unknown ledger. For callers who cannot wait for the log. */
  knownBalance(organizationId: string): MicroCredits | undefined
  /**
   * For the end of the process: resolves when nothing is queued, under way or owed. Throws where that is not so in `drainMaxMs`, after
   * it has logged the calls without an Idempotency-Key that are charged, or may be, although their callers do not know.
   */
  drain(): Promise<void>
  /** Another process reports that it loses its appends to this ledger. */
  competed(organizationId: string): void
}

export type LedgerFailure = { readonly kind: 'rewritten' | 'appends_fail'; readonly error: Error }

const rewrittenMessage =
  'ledger: the event log is not the one this process has read; no more calls are taken. Was it restored from a copy? See src/guides/backup.md, "What do I do if the event log has been restored from an older copy?"'

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
  /** Rejects where the event log was found to be another one. */
  const asking = <Value>(organizationId: string, ask: (writer: Writer) => Promise<Value>): Promise<Value> =>
    rewritten === undefined
      ? ask(writers.of(organizationId))
      : Promise.reject(
          new LedgerUnavailable('the event log is not the one this process has read', { cause: rewritten }),
        )

  /** The same for questions to the event log: rejects immediately while it does not answer. */
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
    // Each command reports it; this is for an organization that has sent none.
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
  'ledger: the process stops while these calls, which were answered with 504, are charged or may be; give back what was charged with "ledger reverse --requests FILE"'

/** The writers of this process, one for each organization that was asked about. */
const createWriters = (
  options: LedgerOptions & { readonly limits: LedgerLimits },
  reports: WriterReports,
) => {
  const { logger, limits } = options
  const writers = new Map<string, Writer>()
  const away = createOutage({ logger, what: 'ledger: writing', level: 'error' })
  const busy = (): Writer[] => [...writers.values()].filter(({ state }) => !isAtRest(state))
  let checking: NodeJS.Timeout | undefined
  /** Ends the wait of callers who have waited too long, even if the event log does nothing. */
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
      if (known !== undefined) return known
      if (writers.size >= limits.accountsMax) forgetOne(writers)
      const writer = createWriter(organizationId, { ...options, reports, away })
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
        throw new Error('the event log did not say in time whether the last appends were written')
    },
  }
}

/** The writer that has been idle longest. An account it forgets is loaded again when needed. */
const forgetOne = (writers: Map<string, Writer>): void => {
  for (const [id, writer] of writers)
    if (writer.forgettable()) {
      writers.delete(id)
      return
    }
}

/**
 * Whether the event log takes appends: a full disk answers every read and refuses every call. A process whose appends
 * fail reports it and is sent no more calls, so it has to find out by itself when they succeed again. It tries with the
 * one fact that is worth recording then: appends succeed again, and since when they failed.
 */
type AppendWatch = {
  failed(error: Error): void
  succeeded(): void
  /** Null while appends succeed, as far as is known. */
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
