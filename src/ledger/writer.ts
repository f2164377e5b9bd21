import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { eventIdOf } from '../event-log/event-id.ts'
import { createOutage, type Outage } from '../event-log/outage.ts'
import {
  AppendConflict,
  type EventLog,
  LogRewritten,
  Unavailable,
  UnknownOutcome,
} from '../event-log/port.ts'
import { ledgerStream } from '../events/streams.ts'
import { createAbandoned, reversalCommand } from './abandoned.ts'
import { type Account, draftOf } from './account.ts'
import {
  type Batch,
  commandsOf,
  type Decide,
  decideInto,
  newBatch,
  type Queued,
  unheardOf,
  waitingOf,
} from './batch.ts'
import type { Committed, LedgerCommand } from './command.ts'
import { decideCommand } from './decide.ts'
import { type AccountSnapshot, createReader } from './reader.ts'

/**
 * One organization's writer in one process. Whatever is queued while an append is under way becomes the next batch: each
 * command is decided against the account as the ones before it left it, and the batch is appended at exactly the revision
 * it was decided for. The stream itself is the lock.
 */

/** The ledger cannot take the command now; nothing was charged. The caller may try again. */
export class LedgerUnavailable extends Error {
  override name = 'LedgerUnavailable'
}

export type LedgerLimits = {
  readonly batchCommandsMax: number
  readonly batchBytesMax: number
  readonly queuedPerOrganizationMax: number
  readonly accountsMax: number
  /** How long a known failure is retried before the batch is refused. */
  readonly unavailableRetryMs: number
  /** How long an unknown outcome is resent before the stream itself is asked. Longer than any engine's own deadline. */
  readonly unknownRetryMs: number
  readonly retryPauseMs: number
  /** How often a refused batch is looked for that may still arrive, while nothing else makes the writer look. */
  readonly abandonedCheckMs: number
  readonly readPageMax: number
  /** How long one read may take. */
  readonly readDeadlineMs: number
  /** After this a caller is refused, whatever becomes of the command. Callers of a call add at most two seconds to it. */
  readonly callerWaitMaxMs: number
  /** How often in a row an append may be refused although nothing new stands in the ledger. */
  readonly idleConflictsMax: number
}

/** `now` is the time of day. Durations are measured with `monotonic`, which nobody sets back; default: `now`. */
type LedgerClock = { now(): number; monotonic?(): number }

export type LedgerOptions = {
  readonly eventLog: EventLog
  readonly snapshot: AccountSnapshot
  readonly logger: Logger
  readonly clock: LedgerClock
  readonly limits?: Partial<LedgerLimits>
  readonly observe?: LedgerObserver
  /** The rules, where a test has others. */
  readonly decide?: Decide
}

/** What a writer tells the ledger it belongs to. */
export type WriterReports = {
  /** The event log no longer holds what this process wrote or read: nothing it says can be trusted any more. */
  rewritten(error: Error): void
  /** An append was durable; or it was refused for good, or its outcome stayed unknown. */
  appended(): void
  notAppended(error: unknown): void
}

/** What operations wants to know; every member may be left out. */
export type LedgerObserver = {
  batch?(commands: number, events: number, ms: number): void
  conflict?(): void
  unknownOutcome?(): void
  reversal?(): void
}

export type Writer = {
  submit(command: LedgerCommand): Promise<Committed>
  current(): Promise<Account>
  lastSeen(): Promise<Account>
  idle(): boolean
  forgettable(): boolean
  settled(): Promise<void>
  /** Refuses callers who have waited too long. */
  refuseLate(): void
}

export const createWriter = (
  organizationId: string,
  options: LedgerOptions & {
    limits: LedgerLimits
    reports: WriterReports
    /** The event log does not answer, or takes no appends: the same for every organization, and told once. */
    away: Outage
  },
): Writer => {
  const { eventLog, logger, clock, limits, observe, reports, decide = decideCommand } = options
  const monotonic = clock.monotonic ?? clock.now
  const stream = ledgerStream(organizationId)
  const reader = createReader(organizationId, options)
  const trouble = createOutage({ logger, what: `ledger: writing ${organizationId}`, level: 'error' })
  const queue: Queued[] = []
  const abandoned = createAbandoned({ stream, eventLog })
  const recent = new Map<string, Committed>()
  let account: Account | undefined
  let loading: Promise<Account> | undefined
  let running: Promise<void> | undefined
  /** The batch being written, and the one decided on top of it. */
  let inFlight: Batch | undefined
  let next: Batch | undefined
  let preparing = false
  let settling = 0
  /** Appends refused in a row although nothing new stood in the ledger. */
  let idleConflicts = 0
  let looking: NodeJS.Timeout | undefined

  const load = async (): Promise<Account> => {
    const loaded = await reader.load()
    answerFrom(loaded.found)
    return loaded.account
  }

  /**
   * Answers queued commands that stand between the revision up to which they are known to be absent and the account's:
   * the account was folded past them without anybody asking for them.
   */
  const answerPast = async (current: Account): Promise<void> => {
    const asked = queue.filter(({ absentUpTo }) => absentUpTo < current.revision)
    if (asked.length === 0) return
    const from = Math.min(...asked.map(({ absentUpTo }) => absentUpTo)) + 1
    const to = current.revision
    answerFrom(await reader.findBetween(current, { from, to, atMs: clock.now() }))
    for (const queued of asked) queued.absentUpTo = to
  }

  /** Answers queued commands that stand in the ledger already: appending them again would charge twice. */
  const answerFrom = (found: ReadonlyMap<string, Committed>): void => {
    if (found.size === 0 || queue.length === 0) return
    const left = queue.filter((queued) => {
      const committed = found.get(queued.firstEventId)
      if (committed === undefined) return true
      abandoned.answered(queued.firstEventId)
      queued.resolve({ ...committed, repeated: true })
      return false
    })
    queue.splice(0, queue.length, ...left)
  }

  /**
   * While a batch is being written the next is decided on top of it, so that it can follow the moment the first is
   * durable. Should the first not become durable, the next is thrown away and its commands are decided anew.
   */
  const prepareNext = (): void => {
    if (inFlight === undefined || preparing) return
    preparing = true
    setImmediate(() => {
      preparing = false
      if (inFlight === undefined) return
      next ??= newBatch(inFlight.draft, inFlight)
      if (!next.broken) decideInto(next, queue, { stream, limits, decide })
    })
  }

  /** Writes a batch until its outcome is known. 'elsewhere': the ledger has moved on, and holds something else there. */
  const write = async (batch: Batch): Promise<'written' | 'elsewhere'> => {
    const startedAt = monotonic()
    let unknown = false
    for (;;) {
      try {
        await eventLog.append(stream, batch.base === -1 ? 'none' : batch.base, batch.events)
        observe?.batch?.(batch.decided.length, batch.events.length, monotonic() - startedAt)
        return batch.contended && !(await standsAsWritten(batch)) ? 'elsewhere' : 'written'
      } catch (error) {
        if (error instanceof AppendConflict) {
          observe?.conflict?.()
          return 'elsewhere'
        }
        if (error instanceof UnknownOutcome) {
          unknown = true
          observe?.unknownOutcome?.()
        } else if (!unknown && !(error instanceof Unavailable)) throw error
        // Once an outcome was unknown, only the log's word about this very append makes it known again.
        if (monotonic() - startedAt >= (unknown ? limits.unknownRetryMs : limits.unavailableRetryMs)) {
          if (unknown) throw new UnknownOutcome(`no word about an append to ${stream}`, { cause: error })
          throw error
        }
        await sleep(limits.retryPauseMs)
      }
    }
  }

  /**
   * The log recognizes a resent append by its ids. Where another process may have written the same ids with other
   * bytes (the same Idempotency-Key, at another time), what stands is the truth, and the chain continues from it.
   */
  const standsAsWritten = async ({ base, events }: Batch): Promise<boolean> => {
    try {
      const [last] = await reader.page(base + events.length, 1)
      return last?.metadata === events.at(-1)?.metadata
    } catch (error) {
      throw new UnknownOutcome(`${stream} cannot be read after an append`, { cause: error })
    }
  }

  const settle = ({ base, decided, refused }: Pick<Batch, 'base' | 'decided' | 'refused'>): void => {
    for (const { queued, committed } of decided) if (!queued.gaveUp) queued.resolve(committed)
    for (const { queued, error } of refused) queued.reject(error)
    const unheard = unheardOf({ decided })
    if (unheard.size === 0) return
    abandoned.unheard(unheard, base)
    lookLater()
  }

  /** Callers are told after the next batch is on its way: the log works while they are answered. */
  const settleSoon = (batch: Batch): void => {
    settling++
    setImmediate(() => {
      settling--
      settle(batch)
    })
  }

  const writeNext = async (): Promise<void> => {
    let current: Account
    try {
      await lookForAbandoned()
      account ??= await load()
      current = account
      answerFrom(recent)
      await answerPast(current)
    } catch (error) {
      account = undefined
      undecideNext()
      refuse(queue.splice(0), error)
      return
    }
    const batch = next === undefined ? newBatch(current) : { ...next, before: null }
    next = undefined
    if (!batch.broken) decideInto(batch, queue, { stream, limits, decide })
    if (batch.broken) {
      account = undefined
      queue.unshift(...batch.decided.flatMap(({ queued }) => (queued.gaveUp ? [] : [queued])))
      return settle({ base: batch.base, decided: [], refused: batch.refused })
    }
    if (batch.events.length === 0) return settle(batch)
    inFlight = batch
    try {
      if ((await write(batch)) === 'written') {
        account = batch.draft
        idleConflicts = 0
        reports.appended()
        options.away.works()
        trouble.works()
        answerFrom(batch.byFirstEventId)
        if (batch.contended) remember(batch)
        if (!abandoned.empty())
          for (const firstEventId of batch.byFirstEventId.keys()) abandoned.answered(firstEventId)
        settleSoon(batch)
      } else {
        undecideNext()
        queue.unshift(...waitingOf(batch))
        await foldTail(current)
      }
    } catch (error) {
      account = undefined
      undecideNext()
      if (error instanceof LogRewritten) reports.rewritten(error)
      else reports.notAppended(error)
      if (error instanceof UnknownOutcome) await findOut(batch)
      else {
        const again = new Set(commandsOf(batch))
        queue.splice(0, queue.length, ...queue.filter((queued) => !again.has(queued)))
        refuse([...again], error)
      }
    } finally {
      inFlight = undefined
    }
  }

  /**
   * An append was refused: what another process wrote is folded in. Where nothing is there although the engine says so,
   * the log contradicts itself, and going on would repeat this for ever.
   */
  const foldTail = async (current: Account): Promise<void> => {
    const before = current.revision
    // `current` is untouched by the draft: only what stands in the stream is folded into it.
    answerFrom(await reader.catchUp(current))
    idleConflicts = current.revision > before ? 0 : idleConflicts + 1
    if (idleConflicts < limits.idleConflictsMax) return
    idleConflicts = 0
    logger.fatal(
      { organizationId, revision: current.revision, engine: await eventLog.lastRevision(stream) },
      'ledger: the event log refuses appends after the last event it shows; see "ledger verify". Calls of this organization are refused',
    )
    throw new Unavailable(`${stream} cannot be appended to after its last event`)
  }

  /** Commands whose keys may come back, for a while: they are answered without asking anybody. */
  const remember = ({ byFirstEventId }: Batch): void => {
    for (const [firstEventId, committed] of byFirstEventId) recent.set(firstEventId, committed)
    for (const oldest of recent.keys()) {
      if (recent.size <= limits.batchCommandsMax) break
      recent.delete(oldest)
    }
  }

  const undecideNext = (): void => {
    inFlight = undefined
    if (next !== undefined) queue.unshift(...waitingOf(next))
    next = undefined
  }

  /**
   * The log never told. An append is atomic and stands at exactly its revision, so the event there decides about the
   * whole batch. Where it is not there, or cannot be read, the callers are refused, and a late arrival is reversed.
   */
  const findOut = async (batch: Batch): Promise<void> => {
    try {
      const [there] = await reader.page(batch.base + 1, 1)
      // The metadata holds the digest: the same ids with other bytes would be another process's.
      if (there !== undefined && there.metadata === batch.events[0]?.metadata) return settle(batch)
      if (there === undefined) abandon(batch)
      refuse(commandsOf(batch), new Unavailable(`an append to ${stream} was not written`))
    } catch (error) {
      abandon(batch)
      refuse(commandsOf(batch), error)
    }
  }

  const abandon = (batch: Batch): void => {
    abandoned.add(batch)
    lookLater()
  }

  const lookLater = (): void => {
    if (looking !== undefined) return
    looking = setTimeout(() => {
      looking = undefined
      running ??= run()
    }, limits.abandonedCheckMs)
    looking.unref()
  }

  /** Reverses what arrived of batches that were refused. Ahead of every batch: their place may be the next one. */
  const lookForAbandoned = async (): Promise<void> => {
    if (abandoned.empty()) return
    await abandoned.lookAgain(queue)
    for (const reversal of abandoned.due()) {
      const command = reversalCommand(reversal, { nowMs: clock.now(), logger })
      if (queue.some((queued) => queued.command.key === command.key)) continue
      enqueue(
        command,
        ({ events }) => {
          abandoned.done(reversal)
          // Otherwise the answer was delivered after all, perhaps by another process: the charge is owed.
          if (events.some(({ type }) => type === 'CreditAdjusted')) observe?.reversal?.()
        },
        (error) => {
          logger.error(
            { err: error, organizationId, chargeId: reversal.chargeId },
            'ledger: a reversal could not be written yet',
          )
          lookLater()
        },
      )
    }
    if (!abandoned.empty()) lookLater()
  }

  const refuse = (commands: readonly Queued[], cause: unknown): void => {
    if (commands.length === 0) return
    if (cause instanceof Unavailable || cause instanceof UnknownOutcome) options.away.failed(cause)
    else trouble.failed(cause)
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause })
    for (const { reject } of commands) reject(error)
  }

  const run = async (): Promise<void> => {
    // What arrives in one turn of the event loop becomes one batch.
    await new Promise((resolve) => setImmediate(resolve))
    do await writeNext()
    while (queue.length > 0 || next !== undefined)
    running = undefined
  }

  const enqueue = (command: LedgerCommand, resolve: Queued['resolve'], reject: Queued['reject']): void => {
    const ids: string[] = []
    const idOf = (index: number): string => (ids[index] ??= eventIdOf(organizationId, command.key, index))
    const queuedAtMs = monotonic()
    queue.push({
      command,
      firstEventId: idOf(0),
      idOf,
      resolve,
      reject,
      absentUpTo: command.absentUpTo ?? Number.POSITIVE_INFINITY,
      queuedAtMs,
      gaveUp: false,
    })
  }

  const submit = (command: LedgerCommand): Promise<Committed> =>
    new Promise((resolve, reject) => {
      if (queue.length >= limits.queuedPerOrganizationMax)
        return reject(new LedgerUnavailable(`${queue.length} calls of this organization are waiting already`))
      enqueue(command, resolve, reject)
      running ??= run()
      prepareNext()
    })

  const reportRewritten = (error: unknown): never => {
    if (error instanceof LogRewritten) reports.rewritten(error)
    throw error
  }

  const refuseLate = (): void => {
    const isLate = ({ queuedAtMs, gaveUp, command }: Queued): boolean =>
      !gaveUp &&
      monotonic() - queuedAtMs >=
        Math.min(limits.callerWaitMaxMs, command.waitMaxMs ?? limits.callerWaitMaxMs)
    const underWay = [inFlight, next].flatMap((batch) => (batch === undefined ? [] : commandsOf(batch)))
    const late = [...queue.filter(isLate), ...underWay.filter(isLate)]
    if (late.length === 0) return
    queue.splice(0, queue.length, ...queue.filter((queued) => !isLate(queued)))
    for (const queued of late) queued.gaveUp = true
    refuse(late, new Unavailable('no word of the event log for as long as a caller waits'))
  }

  return {
    submit,
    refuseLate,
    current: async () => {
      await running
      const known = account
      const fresh = known === undefined ? await load() : draftOf(known)
      if (known !== undefined) await reader.catchUp(fresh).catch(reportRewritten)
      // What others have appended is read once, and not again by everybody who asks while this process appends nothing.
      if (running === undefined && (account?.revision ?? -1) < fresh.revision) account = draftOf(fresh)
      return fresh
    },
    lastSeen: async () => {
      if (account !== undefined) return account
      loading ??= load()
        .catch((error: unknown) => {
          throw new LedgerUnavailable('the ledger cannot be read now', { cause: error })
        })
        .finally(() => {
          loading = undefined
        })
      const loaded = await loading
      // A batch may have been written meanwhile: then the account has moved on beyond what was loaded.
      account ??= loaded
      return account
    },
    idle: () => running === undefined && settling === 0,
    forgettable: () => running === undefined && settling === 0 && abandoned.empty(),
    settled: async () => {
      await running
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
}
