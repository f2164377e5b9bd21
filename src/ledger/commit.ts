import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type MicroCredits, parseCredits } from '../billing/money.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import { ledgerStream } from '../events/streams.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { chain } from '../event-log/hash-chain.ts'
import { AppendConflict, type EventLog, type NewEvent, StreamMissing, Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { decodeEvent, encodeEvent } from '../event-log/stored-event.ts'
import { type Account, balanceOf, draftOf, evolve, newAccount } from './account.ts'
import { type Decision, isRefusal, reverseCharge } from './decide.ts'

/**
 * The ledger protocol: how decisions about an organization's credits become events without a lost one, a double one
 * or an overdraft, across any number of processes.
 *
 * One writer per organization and process. Whatever is queued while an append is under way becomes the next batch:
 * each command is decided against the account as the ones before it left it, and the batch is appended at exactly the
 * revision it was decided for. The stream itself is the lock. See README, "The ledger protocol".
 *
 * It is not a place for I/O of a call: commands arrive with everything they need.
 */

export type LedgerCommand = {
  /** Idempotency-Key or request id: with the organization it determines every event id. */
  readonly key: string
  readonly atMs: number
  readonly actor: string
  readonly requestId?: string
  /** `idOf(n)` is the id the command's nth event will have. */
  readonly decide: (account: Account, idOf: (index: number) => string) => Decision
}

/** What a command led to, durably. `repeated`: its events stood in the ledger already. */
export type Committed = {
  readonly events: readonly LedgerEvent[]
  readonly revision: number
  readonly balance: MicroCredits
  readonly repeated: boolean
}

/** The ledger's rules forbid the command; nothing was written. */
export class CommandRefused extends Error {
  override name = 'CommandRefused'
}

/** The ledger cannot take the command now; nothing was charged. The caller may try again. */
export class LedgerUnavailable extends Error {
  override name = 'LedgerUnavailable'
}

export type AccountSnapshot = (organizationId: string) => Promise<Account | null>

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
  readonly readPageMax: number
}

export const ledgerLimits: LedgerLimits = {
  batchCommandsMax: 256,
  batchBytesMax: 512 * 1024,
  queuedPerOrganizationMax: 5_000,
  accountsMax: 10_000,
  unavailableRetryMs: 2_000,
  unknownRetryMs: 15_000,
  retryPauseMs: 50,
  readPageMax: 1_000,
}

export type LedgerOptions = {
  readonly eventLog: EventLog
  readonly snapshot: AccountSnapshot
  readonly logger: Logger
  readonly clock: { now(): number }
  readonly limits?: Partial<LedgerLimits>
  readonly observe?: LedgerObserver
}

/** What operations wants to know; every member may be left out. */
export type LedgerObserver = {
  batch?(commands: number, events: number, ms: number): void
  conflict?(): void
  unknownOutcome?(): void
  reversal?(): void
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

type Queued = {
  readonly command: LedgerCommand
  readonly firstEventId: string
  readonly idOf: (index: number) => string
  readonly resolve: (committed: Committed) => void
  readonly reject: (error: Error) => void
}

/** A command with what was decided for it in the batch being written. */
type Decided = {
  readonly queued: Queued
  readonly events: readonly LedgerEvent[]
  readonly revision: number
  readonly balance: MicroCredits
}

type Batch = {
  readonly draft: Account
  readonly events: NewEvent[]
  readonly decided: Decided[]
  /** Commands the rules forbid, told so when the batch they were decided with is durable. */
  readonly refused: { readonly queued: Queued; readonly error: Error }[]
  /** Decided commands by first event id: a command sent twice is decided once. */
  readonly byFirstEventId: Map<string, Decided>
  bytes: number
  /** A decision contradicted the account while it was folded in: the draft is worth nothing any more. */
  broken: boolean
}

const newBatch = (from: Account): Batch => ({
  draft: draftOf(from),
  events: [],
  decided: [],
  refused: [],
  byFirstEventId: new Map(),
  bytes: 0,
  broken: false,
})

/** The commands of a batch that came to nothing, to be decided anew. */
const commandsOf = ({ decided, refused }: Batch): Queued[] => [...decided, ...refused].map(({ queued }) => queued)

export const createLedger = (options: LedgerOptions): Ledger => {
  const limits = { ...ledgerLimits, ...options.limits }
  const writers = new Map<string, Writer>()

  const writerOf = (organizationId: string): Writer => {
    const known = writers.get(organizationId)
    if (known !== undefined) {
      // Kept in order of use, so that the first idle one is the one to forget.
      writers.delete(organizationId)
      writers.set(organizationId, known)
      return known
    }
    if (writers.size >= limits.accountsMax) {
      for (const [id, writer] of writers)
        if (writer.idle()) {
          writers.delete(id)
          break
        }
    }
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

type Writer = {
  submit(command: LedgerCommand): Promise<Committed>
  current(): Promise<Account>
  lastSeen(): Promise<Account>
  idle(): boolean
  settled(): Promise<void>
}

const createWriter = (
  organizationId: string,
  { eventLog, snapshot, logger, clock, limits, observe }: LedgerOptions & { limits: LedgerLimits },
): Writer => {
  const stream = ledgerStream(organizationId)
  const queue: Queued[] = []
  /** First event ids of commands refused although their append may still arrive. */
  const abandoned = new Set<string>()
  const abandonedMax = limits.batchCommandsMax * 4
  let account: Account | undefined
  let loading: Promise<Account> | undefined
  let running: Promise<void> | undefined
  /** The batch being written, and the one decided on top of it. */
  let inFlight: Batch | undefined
  let next: Batch | undefined
  let preparing = false
  let settling = 0

  const load = async (): Promise<Account> => {
    const loaded = (await snapshot(organizationId)) ?? newAccount(organizationId)
    await readTail(loaded)
    return loaded
  }

  /** Folds everything after the account's revision into it, and tells which commands it holds, by first event id. */
  const readTail = async (into: Account): Promise<Map<string, Committed>> => {
    const found = new Map<string, { events: LedgerEvent[]; revision: number; balance: MicroCredits; repeated: true }>()
    const firstOf = new Map<string, string>()
    for (;;) {
      let page: Awaited<ReturnType<EventLog['read']>>
      try {
        page = await eventLog.read(stream, { from: into.revision + 1, max: limits.readPageMax })
      } catch (error) {
        if (error instanceof StreamMissing) return found
        throw error
      }
      for (const recorded of page) {
        const { metadata, ...decoded } = decodeEvent(recorded)
        const event = { type: decoded.type, data: decoded.data } as LedgerEvent
        evolve(into, event, recorded.revision)
        into.digest = metadata.digest ?? ''
        const first = metadata.causation_id === undefined ? recorded.id : (firstOf.get(metadata.causation_id) ?? recorded.id)
        firstOf.set(recorded.id, first)
        const entry = found.get(first) ?? { events: [], revision: 0, balance: 0n, repeated: true }
        entry.events.push(event)
        entry.revision = recorded.revision
        entry.balance = balanceOf(into, clock.now())
        found.set(first, entry)
        reverseIfAbandoned(first, event)
      }
      if (page.length < limits.readPageMax) return found
    }
  }

  /** An abandoned append arrived after all: its caller was told that nothing was charged, so that becomes true. */
  const reverseIfAbandoned = (firstEventId: string, event: LedgerEvent): void => {
    if (event.type !== 'CreditCharged' || !abandoned.delete(firstEventId)) return
    const { charge_id, amount } = event.data
    logger.warn({ organizationId, chargeId: charge_id }, 'ledger: a charge arrived after its call was refused; reversing it')
    observe?.reversal?.()
    const key = `reversal/${charge_id}`
    const command: LedgerCommand = {
      key,
      atMs: clock.now(),
      actor: 'system',
      decide: (current, idOf) =>
        reverseCharge(current, {
          adjustmentId: idOf(0),
          chargeId: charge_id,
          amount: parseCredits(amount),
          reason: 'the answer was never delivered',
        }),
    }
    submit(command).catch((error: unknown) =>
      logger.error({ err: error, organizationId, chargeId: charge_id }, 'ledger: a reversal could not be written'),
    )
  }

  /** Decides queued commands onto a batch, one after the other, until it is full. */
  const decideInto = (batch: Batch): void => {
    const { draft } = batch
    let taken = 0
    for (const queued of queue) {
      if (batch.decided.length >= limits.batchCommandsMax || batch.bytes >= limits.batchBytesMax) break
      taken++
      const twin = batch.byFirstEventId.get(queued.firstEventId)
      if (twin !== undefined) {
        batch.decided.push({ ...twin, queued })
        continue
      }
      try {
        const decision = queued.command.decide(draft, queued.idOf)
        if (isRefusal(decision)) {
          batch.refused.push({ queued, error: new CommandRefused(decision.refused) })
          continue
        }
        const encoded = encodeDecision(queued, decision)
        batch.broken = true
        addToBatch(batch, stream, decision, encoded)
        batch.broken = false
        const decided = { queued, events: decision, revision: draft.revision, balance: balanceOf(draft, queued.command.atMs) }
        batch.decided.push(decided)
        batch.byFirstEventId.set(queued.firstEventId, decided)
      } catch (error) {
        batch.refused.push({ queued, error: error instanceof Error ? error : new Error(String(error)) })
        if (batch.broken) break
      }
    }
    queue.splice(0, taken)
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
      next ??= newBatch(inFlight.draft)
      if (!next.broken) decideInto(next)
    })
  }

  /** Writes a batch until its outcome is known. Returns 'elsewhere' when the ledger has moved on. */
  const write = async (batch: Batch, expected: number): Promise<'written' | 'elsewhere'> => {
    const startedAt = clock.now()
    let unknown = false
    for (;;) {
      try {
        await eventLog.append(stream, expected === -1 ? 'none' : expected, batch.events)
        observe?.batch?.(batch.decided.length, batch.events.length, clock.now() - startedAt)
        return 'written'
      } catch (error) {
        if (error instanceof AppendConflict) {
          observe?.conflict?.()
          return 'elsewhere'
        }
        if (error instanceof UnknownOutcome) {
          unknown = true
          observe?.unknownOutcome?.()
        } else if (!(error instanceof Unavailable)) throw error
        // Once an outcome was unknown, only the log's word about this very append makes it known again.
        if (clock.now() - startedAt >= (unknown ? limits.unknownRetryMs : limits.unavailableRetryMs)) {
          if (unknown) throw new UnknownOutcome(`no word about an append to ${stream}`, { cause: error })
          throw error
        }
        await sleep(limits.retryPauseMs)
      }
    }
  }

  const settle = ({ decided, refused }: Batch): void => {
    for (const { queued, events, revision, balance } of decided) queued.resolve({ events, revision, balance, repeated: false })
    for (const { queued, error } of refused) queued.reject(error)
  }

  /** Callers are told after the next batch is on its way: the log works while they are answered. */
  const settleSoon = (batch: Batch): void => {
    settling++
    setImmediate(() => {
      settling--
      settle(batch)
    })
  }

  /** Answers the commands that already stand in the ledger and queues the others again, in their order. */
  const resolveAgainst = (found: ReadonlyMap<string, Committed>, batch: Batch): void => {
    const again: Queued[] = []
    for (const queued of commandsOf(batch)) {
      const committed = found.get(queued.firstEventId)
      if (committed === undefined) again.push(queued)
      else queued.resolve(committed)
    }
    queue.unshift(...again)
  }

  const writeNext = async (): Promise<void> => {
    let current: Account
    try {
      account ??= await load()
      current = account
    } catch (error) {
      refuse(queue.splice(0), error)
      return
    }
    const batch = next ?? newBatch(current)
    next = undefined
    if (!batch.broken) decideInto(batch)
    if (batch.broken) {
      account = undefined
      queue.unshift(...batch.decided.map(({ queued }) => queued))
      return settle({ ...batch, decided: [] })
    }
    if (batch.events.length === 0) return settle(batch)
    inFlight = batch
    try {
      const outcome = await write(batch, current.revision)
      if (outcome === 'written') {
        account = batch.draft
        settleSoon(batch)
      } else {
        undecideNext()
        // `current` is untouched by the draft: only what stands in the stream is folded into it.
        resolveAgainst(await readTail(current), batch)
      }
    } catch (error) {
      account = undefined
      undecideNext()
      if (error instanceof UnknownOutcome) await findOut(batch)
      else refuse(commandsOf(batch), error)
    } finally {
      inFlight = undefined
    }
  }

  const undecideNext = (): void => {
    inFlight = undefined
    if (next !== undefined) queue.unshift(...commandsOf(next))
    next = undefined
  }

  /**
   * The log never told. An append is atomic and stands at exactly its revision, so the event there decides about the
   * whole batch. Where not even that can be read the callers are refused, and a late arrival is reversed.
   */
  const findOut = async (batch: Batch): Promise<void> => {
    const { draft, events } = batch
    const commands = commandsOf(batch)
    const first = draft.revision - events.length + 1
    try {
      const [there] = await eventLog.read(stream, { from: first, max: 1 }).catch((error: unknown) => {
        if (error instanceof StreamMissing) return []
        throw error
      })
      if (there !== undefined && there.id === events[0]?.id) {
        settle(batch)
        return
      }
      if (there === undefined) abandon(commands)
      refuse(commands, new Unavailable(`an append to ${stream} was not written`))
    } catch (error) {
      abandon(commands)
      refuse(commands, error)
    }
  }

  const abandon = (commands: readonly Queued[]): void => {
    for (const { firstEventId } of commands) if (abandoned.size < abandonedMax) abandoned.add(firstEventId)
  }

  const refuse = (commands: readonly Queued[], cause: unknown): void => {
    logger.error({ err: cause, organizationId, commands: commands.length }, 'ledger: commands refused')
    const error = new LedgerUnavailable('the ledger cannot be written now', { cause })
    for (const { reject } of commands) reject(error)
  }

  const run = async (): Promise<void> => {
    // What arrives in one turn of the event loop becomes one batch.
    await new Promise((resolve) => setImmediate(resolve))
    while (queue.length > 0 || next !== undefined) await writeNext()
    running = undefined
  }

  const submit = (command: LedgerCommand): Promise<Committed> =>
    new Promise((resolve, reject) => {
      if (queue.length >= limits.queuedPerOrganizationMax)
        return reject(new LedgerUnavailable(`${queue.length} calls of this organization are waiting already`))
      const ids: string[] = []
      const idOf = (index: number): string => (ids[index] ??= eventIdOf(organizationId, command.key, index))
      queue.push({ command, firstEventId: idOf(0), idOf, resolve, reject })
      running ??= run()
      prepareNext()
    })

  return {
    submit,
    current: async () => {
      await running
      const fresh = account === undefined ? await load() : draftOf(account)
      await readTail(fresh)
      return fresh
    },
    lastSeen: async () => (account ??= await (loading ??= load().finally(() => {
      loading = undefined
    }))),
    idle: () => running === undefined && settling === 0,
    settled: async () => {
      await running
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
}

/** Serialises what was decided for a command. Throws TypeError for data events cannot hold. */
const encodeDecision = ({ command, firstEventId, idOf }: Queued, decision: readonly LedgerEvent[]): NewEvent[] => {
  const effectiveAt = new Date(command.atMs).toISOString()
  return decision.map((event, i) =>
    encodeEvent(event, {
      id: idOf(i),
      actor: command.actor,
      effectiveAt,
      requestId: command.requestId,
      causationId: i === 0 ? undefined : firstEventId,
    }),
  )
}

/** Chains encoded events onto the batch and folds them into its draft. */
const addToBatch = (batch: Batch, stream: string, decision: readonly LedgerEvent[], encoded: readonly NewEvent[]): void => {
  const { draft } = batch
  decision.forEach((event, i) => {
    const bare = encoded[i]
    if (bare === undefined) return
    const revision = draft.revision + 1
    const chained = chain(bare, { stream, revision, previous: draft.digest })
    evolve(draft, event, revision)
    draft.digest = chained.digest
    batch.events.push(chained.event)
    batch.bytes += chained.event.data.length + chained.event.metadata.length
  })
}
