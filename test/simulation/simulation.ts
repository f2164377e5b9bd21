/**
 * The ledger protocol under a simulated network. Several processes use one log, with lost replies, lost requests, late and
 * duplicate arrivals, outages, crashes, and callers who retry. The seed determines time, randomness and every interleaving. A
 * failure prints the seed: SIM_SEED=<seed> plays it again.
 */
import { hash } from 'node:crypto'
import { type Logger, pino } from 'pino'
import { expect } from 'vitest'
import { type MicroCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { type EventLog, StreamMissing } from '../../src/event-log/port.ts'
import { decodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { balanceOf, evolve, newAccount } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import {
  type Committed,
  type LedgerCommand,
  LedgerOutcomeUnknown,
  LedgerUnavailable,
} from '../../src/ledger/command.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import type { AccountSnapshot } from '../../src/ledger/write/reader.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import {
  type AppendAttempt,
  type AppendFault,
  createMemoryEventLog,
  type MemoryEventLog,
} from '../support/memory-event-log.ts'
import { createProjector } from './projector.ts'
import { time } from './time.ts'

const startMs = Date.parse('2026-03-01T00:00:00.000Z')
const book = priceBookOf(defaultPriceBook)
const keyId = 'K9abcdefghijklmn'
const organizationIds = ['A', 'B', 'C'].map((letter) => `org_01K9SSSSSSSSSSSSSSSSSSSSS${letter}`)
const overdrafts = ['0', '5', '20']
const operationsDefault = 3_000
const clientsMax = 24
/** The projection that provides snapshots is this far behind. */
const snapshotLagMs = 400
/** The ledger's own limit, plus the interval at which it looks for late callers. */
const answerMaxMs = 11_000
/** An answer can be this late, because the ledger looks for late callers at this interval. */
const overdueMaxMs = 1_200
/** In this time after the network recovers, everything in flight arrives and is reversed if necessary. */
const restMs = 60_000

type Process = {
  readonly name: string
  readonly ledger: Ledger
  readonly eventLog: EventLog
  /** The time until which the process neither sends nor receives. */
  frozenUntilMs: number
  alive: boolean
  /** Whether it was shut down normally. It then logged the request ids of the calls that it still had to reverse. */
  stopped: boolean
  readonly owed: Set<string>
  outageUntilMs: number
  /** Whether the network delays the process's appends during an outage until some time after it. */
  held: boolean
  /** Callers that wait for the process, with a command or a query. */
  readonly waiting: Set<{ readonly command: boolean }>
  crash: () => void
  readonly crashed: Promise<never>
}

/** The answer to a command, and the process that gave it. */
type Outcome =
  | { readonly kind: 'committed'; readonly committed: Committed }
  | { readonly kind: 'unavailable'; readonly by: Process }
  /** Nothing was written, because the account does not meet the command's condition. */
  | { readonly kind: 'nothing'; readonly by: Process }
  | { readonly kind: 'crashed' }
  /** The command may have been written. */
  | { readonly kind: 'unknown'; readonly by: Process }
  | { readonly kind: 'failed'; readonly error: unknown }

type Call = {
  readonly organizationId: string
  readonly key: string
  /** Whether the call has an Idempotency-Key. */
  readonly keyed: boolean
  readonly outcomes: Outcome[]
}

/** Distinguishes the facts of a call from those of all other calls, independently of event ids. */
const markOf = ({ key }: Pick<Call, 'key'>): string => hash('sha256', key, 'base64url')

const fail = (message: string): never => {
  throw new Error(message)
}

class ProcessCrashed extends Error {
  override name = 'ProcessCrashed'
}

/** A typical mistake in a ledger, added from outside. Its members wrap the ledger's inputs; the checks use the original data. */
export type Mutant = {
  /** The event log of one process's ledger. */
  readonly eventLog?: (eventLog: EventLog) => EventLog
  /** The ledger that callers use. One function wraps the ledgers of all processes in a simulation. */
  readonly ledger?: () => (ledger: Ledger) => Ledger
  /** A snapshot is folded from this number of events, although it claims to contain `cut`. */
  readonly snapshotContent?: (cut: number) => number
  /** A projection's rows and checkpoint are written one after the other. */
  readonly checkpointApart?: true
}

export type Simulated = {
  readonly operationsMax?: number
  readonly mutant?: Mutant
}

export const simulate = async (
  seed: number,
  { operationsMax = operationsDefault, mutant = {} }: Simulated = {},
): Promise<{ operations: number; events: number; counts: Record<string, number>; longestMs: number }> => {
  const random = seededRandom(seed)
  const chance = (probability: number): boolean => random.next() < probability
  const counts: Record<string, number> = {}
  const count = (what: string): void => {
    counts[what] = (counts[what] ?? 0) + 1
  }
  time.reset(startMs)
  const log = createMemoryEventLog({ now: () => time.nowMs })
  /** Whether the log reports that an append was a repetition. EventStoreDB does not. */
  const tellsRepetition = seed % 8 < 4
  const clock = { now: () => time.nowMs }
  const silent = pino({ level: 'silent' })
  let faulty = true

  /** A projection that is behind by any number of events, possibly between a call and its charge. */
  const snapshot: AccountSnapshot = async (organizationId) => {
    await time.wait(random.integer(10))
    const events = log.eventsOf(ledgerStream(organizationId))
    const known = events.filter(({ recordedAtMs }) => recordedAtMs <= time.nowMs - snapshotLagMs).length
    const cut = Math.max(0, known - random.integer(8))
    if (cut === 0) return null
    const account = newAccount(organizationId)
    for (const recorded of events.slice(0, mutant.snapshotContent?.(cut) ?? cut)) {
      const { type, data } = decodeEvent(recorded)
      evolve(account, { type, data } as LedgerEvent, recorded.revision)
    }
    account.revision = cut - 1
    account.digest = decodeEvent(events[cut - 1] ?? fail('no event')).metadata.digest ?? ''
    return account
  }

  const faultOf = (process: Process): AppendFault | undefined => {
    if (!faulty) return undefined
    if (time.nowMs < process.outageUntilMs) {
      if (process.held) return chance(0.1) ? 'late' : 'lose-request'
      return random.pick(['late', 'lose-request', 'lose-request', 'unavailable'])
    }
    const draw = random.next()
    if (draw < 0.03) return 'lose-reply'
    if (draw < 0.06) return 'lose-request'
    if (draw < 0.08) return 'late'
    if (draw < 0.1) return 'duplicate'
    return draw < 0.12 ? 'unavailable' : undefined
  }

  const wrapped = mutant.ledger?.() ?? ((ledger: Ledger) => ledger)
  // With small pages, a command can extend over the end of a page.
  const limits = chance(0.3) ? { readPageMax: 5 + random.integer(20) } : {}
  let started = 0
  const startProcess = (): Process => {
    const name = `process-${++started}`
    const thaw = async (): Promise<void> => {
      if (time.nowMs < process.frozenUntilMs) await time.wait(process.frozenUntilMs - time.nowMs)
    }
    const crashed = Promise.withResolvers<never>()
    crashed.promise.catch(() => undefined)
    const never = new Promise<never>(() => undefined)
    const client = log.client(name, {
      onAppend: async () => {
        await time.wait(1 + random.integer(6))
        await thaw()
        if (!process.alive) {
          // The request might have been sent before the process died.
          return chance(0.5) ? never : deliverSoon('late').then(() => never)
        }
        const fault = faultOf(process)
        if (fault !== undefined) count(fault)
        if (process.held && time.nowMs < process.outageUntilMs) return fault
        return fault === 'late' || fault === 'duplicate' ? deliverSoon(fault) : fault
      },
      onRead: async () => {
        await time.wait(1 + random.integer(6))
        await thaw()
        if (!process.alive) return never
        return faulty && (time.nowMs < process.outageUntilMs || chance(0.005)) ? 'unavailable' : undefined
      },
    })
    // A frozen process receives the results of its reads and writes late.
    const told: EventLog = {
      ...client,
      append: (...append) => client.append(...append).finally(thaw),
      read: (...read) => client.read(...read).finally(thaw),
    }
    const eventLog: EventLog = tellsRepetition
      ? told
      : { ...told, append: async (...append) => ({ revision: (await told.append(...append)).revision }) }
    const observe = {
      conflict: () => count('conflict'),
      reversal: () => count('reversal'),
      fence: () => count('fence'),
    }
    const owed = new Set<string>()
    const logger: Logger = Object.create(silent, {
      error: {
        value: ({ requestIds = [] }: { readonly requestIds?: readonly string[] }) => {
          for (const requestId of requestIds) owed.add(requestId)
        },
      },
    })
    const own = createLedger({
      eventLog: mutant.eventLog?.(eventLog) ?? eventLog,
      snapshot,
      logger,
      clock,
      limits,
      observe,
      random: random.next,
      competition: { notify: (id) => notifyOthers(name, id) },
    })
    const process: Process = {
      name,
      eventLog,
      ledger: wrapped(own),
      frozenUntilMs: 0,
      alive: true,
      stopped: false,
      owed,
      outageUntilMs: 0,
      held: false,
      waiting: new Set(),
      crashed: crashed.promise,
      crash: () => {
        process.alive = false
        crashed.reject(new ProcessCrashed(name))
      },
    }
    return process
  }

  /** Notifies the other processes. A notice can be lost. */
  const notifyOthers = (from: string, organizationId: string): void => {
    count('competition')
    for (const { name, ledger, alive } of processes)
      if (alive && name !== from && !chance(0.2)) ledger.competed(organizationId)
  }

  const arrive = (copy: AppendAttempt): void => {
    if (log.deliverLate(copy)) count('arrived late')
  }

  const deliverSoon = async (fault: AppendFault): Promise<AppendFault> => {
    const delay = chance(0.7) ? random.integer(200) : random.integer(40_000)
    void time.wait(delay).then(() => {
      if (log.late.length > 0) arrive(random.pick(log.late))
    })
    return fault
  }

  const processes = Array.from({ length: 2 + random.integer(3) }, startProcess)
  /** The first organization is busy, the second is not. The third gets so few calls that a late append still finds its revision free. */
  const anyOrganization = (): string => {
    const [busy = '', calm = '', quiet = ''] = organizationIds
    const draw = random.next()
    return draw < 0.6 ? busy : draw < 0.9 ? calm : quiet
  }
  const anyProcess = (): Process => random.pick(processes)

  let longestMs = 0
  let overdueMs = 0
  /** Waits for a process's answer, which arrives in bounded time unless the process is frozen or crashes. */
  const answered = async <Value>(
    process: Process,
    asked: Promise<Value>,
    waitMaxMs?: number,
  ): Promise<Value> => {
    const startedMs = time.nowMs
    const waits = { command: waitMaxMs !== undefined }
    process.waiting.add(waits)
    try {
      return await Promise.race([asked, process.crashed])
    } finally {
      process.waiting.delete(waits)
      if (process.frozenUntilMs < startedMs) {
        longestMs = Math.max(longestMs, time.nowMs - startedMs)
        overdueMs = Math.max(overdueMs, time.nowMs - startedMs - (waitMaxMs ?? Number.POSITIVE_INFINITY))
      }
    }
  }

  const submit = async (
    process: Process,
    organizationId: string,
    command: LedgerCommand,
  ): Promise<Outcome> => {
    try {
      const committed = await answered(
        process,
        process.ledger.submit(organizationId, command),
        command.waitMaxMs ?? Number.POSITIVE_INFINITY,
      )
      const nothing = committed.events.length === 0 && command.kind === 'record'
      return nothing ? { kind: 'nothing', by: process } : { kind: 'committed', committed }
    } catch (error) {
      if (error instanceof ProcessCrashed) return { kind: 'crashed' }
      if (error instanceof LedgerUnavailable) return { kind: 'unavailable', by: process }
      if (error instanceof LedgerOutcomeUnknown) return { kind: 'unknown', by: process }
      return { kind: 'failed', error }
    }
  }

  /** The check before a call with a key is recorded. If the check finds that the call can be paid, the append requires that it is paid. */
  const demandOf = async (
    process: Process,
    organizationId: string,
    facts: CallFacts,
  ): Promise<{ only?: 'paid' } | null> => {
    const figures = process.ledger.figures(organizationId, { atMs: time.nowMs, cost: { facts, book } })
    const cost = await answered(process, figures).then(
      (found) => found.cost?.affordability,
      () => undefined,
    )
    if (cost === 'paid') return { only: cost }
    return cost === 'free' ? {} : null
  }

  /** Reserves the highest possible price of a call while it is made. Null: the call is not made. */
  const reserve = async (process: Process, organizationId: string, facts: CallFacts) => {
    const asked = process.ledger.reserve(organizationId, { facts, book, atMs: time.nowMs })
    const made = await answered(process, asked).catch(() => null)
    if (made?.kind !== 'held') return null
    count('reserved')
    await time.wait(random.integer(chance(0.8) ? 50 : 3_000))
    return made.release
  }

  /** The check before a call with a key is made. Returns the revision up to which the ledger does not contain the key; null if unknown. */
  const absentUpTo = async (
    { eventLog, crashed }: Process,
    { organizationId, key }: Call,
  ): Promise<number | null> => {
    const id = eventIdOf(organizationId, key, 0)
    try {
      const reading = eventLog.read(ledgerStream(organizationId), { max: 1_000_000 })
      const events = await Promise.race([reading, crashed])
      return (events.find((event) => event.id === id)?.revision ?? events.length) - 1
    } catch (error) {
      return error instanceof StreamMissing ? -1 : null
    }
  }

  const calls: Call[] = []
  const grants: { organizationId: string; grantId: string }[] = []
  let sequence = 0

  const callOnce = async (call: Call, process: Process): Promise<void> => {
    const { keyed: idempotent } = call
    const looked = idempotent ? await absentUpTo(process, call) : null
    if (idempotent && looked === null) return
    const atMs = time.nowMs
    const address_hmac = markOf(call)
    const facts = chance(0.85)
      ? ({ kind: 'ip_lookup', success: true, country_code: 'AT', address_hmac } as const)
      : ({ kind: 'ip_lookup', success: false, country_code: null, address_hmac } as const)
    const { organizationId } = call
    const release = chance(0.2) ? await reserve(process, organizationId, facts) : undefined
    if (release === null) return
    const demand = idempotent && chance(0.5) ? await demandOf(process, organizationId, facts) : {}
    if (demand === null) {
      release?.()
      return
    }
    const requestId = idempotent ? `request-${++sequence}` : call.key
    const outcome = await submit(process, organizationId, {
      key: call.key,
      atMs,
      actor: `key:${keyId}`,
      requestId,
      ...(looked === null ? {} : { absentUpTo: looked }),
      kind: 'record',
      call: { keyId, capability: 'ip_lookup', outcome: 'answered', facts },
      book,
      ...demand,
      ...(chance(0.5) ? { waitMaxMs: 500 + random.integer(10_000) } : {}),
    })
    release?.()
    count(`call ${outcome.kind}`)
    call.outcomes.push(outcome)
  }

  /** Makes one partner's call. A call with an Idempotency-Key is repeated until the partner gives up. */
  const makeCall = async (): Promise<void> => {
    // A call without an Idempotency-Key is made only once.
    const keyed = chance(0.5)
    const call: Call = { organizationId: anyOrganization(), key: `call-${++sequence}`, keyed, outcomes: [] }
    calls.push(call)
    if (keyed && chance(0.1)) {
      count('at once')
      await Promise.all([callOnce(call, anyProcess()), callOnce(call, anyProcess())])
    } else await callOnce(call, anyProcess())
    for (let retry = 0; keyed && retry < 4 && call.outcomes.at(-1)?.kind !== 'committed'; retry++) {
      await time.wait(random.integer(chance(0.5) ? 100 : 30_000))
      count('retry')
      await callOnce(call, anyProcess())
    }
  }

  const grant = async (organizationId: string): Promise<void> => {
    const key = `grant-${++sequence}`
    const expiresAt = chance(0.5) ? new Date(time.nowMs + random.integer(60_000)).toISOString() : null
    const amount = parseCredits(`${1 + random.integer(40)}.${1 + random.integer(8)}`)
    const outcome = await submit(anyProcess(), organizationId, {
      key,
      atMs: time.nowMs,
      actor: 'cli',
      kind: 'grant',
      amount,
      priority: random.integer(3),
      expiresAt,
      reason: 'simulated',
    })
    count('grant')
    if (outcome.kind === 'committed' && expiresAt !== null)
      grants.push({ organizationId, grantId: eventIdOf(organizationId, key, 0) })
  }

  /** All workers find the same expired lots, and derive the command's key from the lot. */
  const sweep = async (): Promise<void> => {
    if (grants.length === 0) return
    const { organizationId, grantId } = random.pick(grants)
    const atMs = time.nowMs
    const process = anyProcess()
    const command: LedgerCommand = {
      key: `expire/${grantId}`,
      atMs,
      actor: 'system',
      kind: 'expire',
      grantId,
    }
    const outcome = await submit(process, organizationId, command)
    count('sweep')
    if (outcome.kind === 'committed' && outcome.committed.events.length > 0)
      grants.splice(
        grants.findIndex((one) => one.grantId === grantId),
        1,
      )
  }

  const setPrice = async (): Promise<void> => {
    const organizationId = anyOrganization()
    const amount = chance(0.3) ? null : parseCredits(`${random.integer(3)}.${1 + random.integer(8)}`)
    const effectiveFrom = new Date(time.nowMs + random.integer(2_000) - 1_000).toISOString()
    await submit(anyProcess(), organizationId, {
      key: `price-${++sequence}`,
      atMs: time.nowMs,
      actor: 'cli',
      kind: 'override_price',
      sku: 'ip_lookup',
      amount,
      effectiveFrom,
    })
    count('price')
  }

  /** A process that shuts down normally accepts no new calls, answers all waiting callers, and finishes its work. */
  const end = async (process: Process): Promise<void> => {
    // Callers that only read an account do not count.
    const waiting = [...process.waiting].filter(({ command }) => command)
    let rested = false
    try {
      await Promise.race([process.ledger.drain(), process.crashed])
      rested = true
      process.stopped = true
    } catch (error) {
      if (!(error instanceof ProcessCrashed)) {
        count('undecided at stop')
        process.stopped = true
      }
    }
    if (rested && waiting.some((one) => process.waiting.has(one)))
      broken = new Error(`${process.name} came to rest while callers waited`)
    while (rested && process.waiting.size > 0) await time.wait(100)
    if (process.alive) process.crash()
  }

  const comeOrGo = (process: Process, at: number): void => {
    const draw = random.next()
    if (draw < 0.3) {
      process.frozenUntilMs = time.nowMs + random.integer(chance(0.6) ? 3_000 : 20_000)
      count('frozen')
    } else if (draw < 0.65) {
      if (processes.length < 6) processes.push(startProcess())
      count('join')
    } else {
      if (processes.length > 2) processes.splice(at, 1)
      else processes[at] = startProcess()
      void end(process)
      count('drain')
    }
  }

  const misfortune = async (): Promise<void> => {
    const at = random.integer(processes.length)
    const process = processes[at]
    if (process === undefined) return
    if (chance(0.5)) return comeOrGo(process, at)
    if (chance(0.5)) {
      process.crash()
      processes[at] = startProcess()
      count('crash')
    } else {
      // Most outages are shorter than the retries after an unknown outcome, but some are longer. Some affect all processes.
      const lengthMs = chance(0.5) ? random.integer(2_000) : 15_000 + random.integer(10_000)
      const held = chance(0.5)
      for (const one of chance(0.4) ? processes : [process]) {
        one.outageUntilMs = time.nowMs + lengthMs
        one.held = held
      }
      // Requests in flight arrive when the network recovers, or later.
      void time.wait(lengthMs + (held ? random.integer(8_000) : 0)).then(() => {
        if (chance(0.6)) while (log.late.length > 0) arrive(random.pick(log.late))
      })
      count('outage')
    }
  }

  const act = (): Promise<void> => {
    const draw = random.next()
    if (draw < 0.86) return makeCall()
    if (draw < 0.92) return grant(anyOrganization())
    if (draw < 0.97) return sweep()
    return draw < 0.985 ? setPrice() : misfortune()
  }

  const projector = createProjector({
    log,
    organizationIds,
    random: seededRandom(seed + 1),
    apart: mutant.checkpointApart === true,
  })
  let broken: unknown
  let operations = 0
  let finished = 0
  const client = async (): Promise<void> => {
    while (operations < operationsMax) {
      operations++
      await act()
      projector.tick()
      await time.wait(random.integer(chance(0.7) ? 12 : 600))
    }
    finished++
  }

  const open = async (): Promise<void> => {
    const process = anyProcess()
    for (const [i, organizationId] of organizationIds.entries())
      for (
        let outcome: Outcome | undefined, tries = 0;
        outcome?.kind !== 'committed' && outcome?.kind !== 'failed';
        tries++
      ) {
        if (tries > 0) await time.wait(10)
        if (tries > 1_000) throw new Error('no organization can be registered')
        outcome = await submit(process, organizationId, {
          key: 'register',
          atMs: time.nowMs,
          actor: 'cli',
          kind: 'register',
          name: organizationId,
          overdraftLimit: parseCredits(overdrafts[i] ?? '0'),
        })
      }
    await Promise.all(Array.from({ length: clientsMax }, client))
  }
  open().catch((error: unknown) => {
    broken = error
  })
  await time.run(() => finished === clientsMax || broken !== undefined)
  if (broken !== undefined) throw broken
  expect(finished, 'every caller is answered in the end').toBe(clientsMax)

  // The network recovers, everything in flight arrives, and every process reads its ledgers once more.
  faulty = false
  for (const process of processes) process.outageUntilMs = 0
  while (log.late.length > 0) log.deliverLate(random.pick(log.late))
  let rested = false
  void time.wait(restMs).then(() => {
    rested = true
  })
  await time.run(() => rested)
  while (log.late.length > 0) log.deliverLate(random.pick(log.late))
  let settled = false
  const settle = async (): Promise<void> => {
    for (const { ledger } of processes) {
      for (const organizationId of organizationIds) {
        await ledger.account(organizationId)
        await ledger.submit(organizationId, {
          key: `last-${++sequence}`,
          atMs: time.nowMs,
          actor: 'system',
          kind: 'expire',
          grantId: 'none',
        })
        const account = await ledger.account(organizationId)
        const figures = await ledger.figures(organizationId, { atMs: time.nowMs, fresh: true })
        const held = figures.balance + account.overdraftLimit - figures.available
        if (held !== 0n) throw new Error(`${held} micro-credits are held by no call`)
      }
      await ledger.drain()
    }
    settled = true
  }
  let restless: unknown = 'a process never comes to rest'
  settle().then(
    () => {
      restless = null
    },
    (error: unknown) => {
      settled = true
      restless = error
    },
  )
  await time.run(() => settled)
  await Promise.resolve()

  let events = 0
  for (const organizationId of organizationIds) {
    const own = calls.filter((one) => one.organizationId === organizationId)
    const recorded = recordedIn(log, organizationId)
    checkMarks(own, recorded)
    const verdict = await verify(log.client('auditor'), organizationId, recorded)
    events += verdict.events
    const probe = probeOf(recorded)
    expect(probe.lowest, 'the balance never goes below the overdraft limit').toBeGreaterThanOrEqual(
      -probe.overdraftLimit,
    )
    for (const call of own) checkCall(call, probe)
    expect(restless, 'every process comes to rest').toBeNull()
    const last = processes[0]?.ledger ?? fail('no process is left')
    let account: Awaited<ReturnType<Ledger['account']>> | undefined
    void last.account(organizationId).then((found) => {
      account = found
    })
    await time.run(() => account !== undefined)
    if (account === undefined) throw new Error('the account cannot be read')
    // The sum still includes expired lots that have not been written off yet.
    const beforeAnyExpiry = balanceOf(account, Number.NEGATIVE_INFINITY)
    expect(beforeAnyExpiry, 'the sum of all movements is the balance').toBe(probe.sum)
    expect(account.revision).toBe(verdict.events - 1)
  }
  expect(projector.rows(), 'the rows equal a fold of the log').toEqual(projector.folded())
  expect(longestMs, 'every caller is answered in bounded time').toBeLessThan(answerMaxMs)
  expect(overdueMs, 'every caller is answered on time').toBeLessThan(overdueMaxMs)
  return { operations, events, counts, longestMs }
}

type Recorded = { readonly id: string; readonly revision: number; readonly event: LedgerEvent }

const recordedIn = (log: MemoryEventLog, organizationId: string): Recorded[] =>
  log.eventsOf(ledgerStream(organizationId)).map((one) => {
    const { type, data } = decodeEvent(one)
    return { id: one.id, revision: one.revision, event: { type, data } as LedgerEvent }
  })

/**
 * The ledger's own verification (chain, ids, charge ids, schemas, recomputed charges, overdraft at every event), and a second
 * check of ids.
 */
const verify = async (
  eventLog: EventLog,
  organizationId: string,
  recorded: readonly Recorded[],
): Promise<{ events: number }> => {
  expect(new Set(recorded.map(({ id }) => id)).size, 'no event id occurs twice').toBe(recorded.length)
  const verdict = await verifyLedger(eventLog, organizationId, { books: [book] })
  expect(verdict.fault, 'the ledger verifies').toBeNull()
  return { events: verdict.events }
}

/** A call is charged once, no matter how often it is repeated. The check compares the calls' facts, not their ids. */
const checkMarks = (calls: readonly Call[], recorded: readonly Recorded[]): void => {
  const keyOf = new Map(calls.map((call) => [markOf(call), call.key]))
  const charged = new Map<string, number>()
  const markOfCharge = new Map<string, string>()
  for (const [i, { event }] of recorded.entries()) {
    const before = recorded[i - 1]?.event
    if (event.type === 'CreditCharged' && before?.type === 'KeyUsed' && 'address_hmac' in before.data.facts) {
      const mark = String(before.data.facts.address_hmac)
      charged.set(mark, (charged.get(mark) ?? 0) + 1)
      markOfCharge.set(event.data.charge_id, mark)
    }
    const mark = event.type === 'CreditAdjusted' ? markOfCharge.get(event.data.adjusts ?? '') : undefined
    if (mark !== undefined) charged.set(mark, (charged.get(mark) ?? 0) - 1)
  }
  for (const [mark, times] of charged)
    expect(times, `${keyOf.get(mark)} is charged at most once`).toBeLessThanOrEqual(1)
}

type Probe = {
  readonly sum: MicroCredits
  readonly lowest: MicroCredits
  readonly overdraftLimit: MicroCredits
  readonly byId: ReadonlyMap<string, Recorded>
  readonly charges: ReadonlyMap<string, MicroCredits>
  readonly reversed: ReadonlyMap<string, MicroCredits>
}

/** Sums the events' amounts without lots, tariff or account, to check the ledger's figures independently. */
const probeOf = (recorded: readonly Recorded[]): Probe => {
  let sum = 0n
  let lowest = 0n
  let overdraftLimit = 0n
  const charges = new Map<string, MicroCredits>()
  const reversed = new Map<string, MicroCredits>()
  for (const { event } of recorded) {
    if (event.type === 'OrganizationRegistered') overdraftLimit = parseCredits(event.data.overdraft_limit)
    if (event.type === 'CreditGranted') sum += parseCredits(event.data.amount)
    if (event.type === 'CreditExpired') sum -= parseCredits(event.data.amount)
    if (event.type === 'CreditCharged') {
      sum -= parseCredits(event.data.amount)
      expect(charges.has(event.data.charge_id), 'no charge id occurs twice').toBe(false)
      charges.set(event.data.charge_id, parseCredits(event.data.amount))
    }
    if (event.type === 'CreditAdjusted') {
      const charge = event.data.adjusts ?? ''
      sum += parseCredits(event.data.amount)
      expect(reversed.has(charge), 'no charge is reversed twice').toBe(false)
      reversed.set(charge, parseCredits(event.data.amount))
    }
    if (sum < lowest) lowest = sum
  }
  return {
    sum,
    lowest,
    overdraftLimit,
    byId: new Map(recorded.map((one) => [one.id, one])),
    charges,
    reversed,
  }
}

const checkCall = (
  { organizationId, key, keyed, outcomes }: Call,
  { byId, charges, reversed }: Probe,
): void => {
  const used = byId.get(eventIdOf(organizationId, key, 0))
  const chargeId = eventIdOf(organizationId, key, 1)
  const charged = charges.get(chargeId) ?? 0n
  const givenBack = reversed.get(chargeId) ?? 0n
  for (const one of outcomes) if (one.kind === 'failed') throw one.error
  for (const one of outcomes) {
    if (one.kind !== 'committed') continue
    const { events, revision } = one.committed
    expect(used, `${key} was acknowledged and is in the ledger`).toBeDefined()
    expect((used?.revision ?? 0) + events.length - 1, `${key} is at the revision that its caller got`).toBe(
      revision,
    )
    const answeredEvents = events.map((event, i) =>
      byId.get(eventIdOf(organizationId, key, i))?.event === undefined ? null : event,
    )
    expect(answeredEvents, `${key} has the events that its caller got`).toEqual(
      events.map((_, i) => byId.get(eventIdOf(organizationId, key, i))?.event),
    )
    const answeredCharge = events.reduce(
      (sum, event) => (event.type === 'CreditCharged' ? sum + parseCredits(event.data.amount) : sum),
      0n,
    )
    expect(charged, `${key} was charged the amount that its caller got`).toBe(answeredCharge)
  }
  const acknowledged = outcomes.some(({ kind }) => kind === 'committed')
  if (acknowledged && charged > 0n) expect(givenBack, `${key} was answered, so its charge stays`).toBe(0n)
  if (givenBack !== 0n) {
    expect(keyed, `${key} was reversed, so it cannot be repeated`).toBe(false)
    expect(
      outcomes.map(({ kind }) => kind),
      `${key} was reversed, so its outcome was unknown`,
    ).toEqual(['unknown'])
    expect(givenBack, `${key} was reversed in full`).toBe(charged)
  }
  // A refusal is final, even if the process ends.
  if (outcomes.length > 0 && outcomes.every(({ kind }) => kind === 'unavailable' || kind === 'nothing'))
    expect(charged, `${key} was refused, so nothing is charged`).toBe(0n)
  const [only] = outcomes
  if (only?.kind !== 'unknown' || keyed || !(only.by.alive || only.by.stopped)) return
  // A running process reverses the charge. A process that shuts down normally logs the charges that it could not reverse.
  if (!only.by.owed.has(key)) expect(charged - givenBack, `${key} is reversed`).toBe(0n)
}
