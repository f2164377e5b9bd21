import type { PriceBook } from '../billing/price-book.ts'
import type { Owners } from '../peers/owners.ts'
import type { Peer } from '../peers/peer.ts'
import { createAsking, type Patience } from './asking.ts'
import { CommandRefused, type Committed, type LedgerCommand } from './command.ts'
import type { Ledger, LocalLedger } from './commit.ts'
import type { Figures, FiguresQuestion } from './figures.ts'
import type { LedgerObserver } from './options.ts'
import {
  bookMessage,
  bookOf,
  committedOf,
  figuresMessage,
  type PassedAnswer,
  releaseMessage,
  reserveMessage,
  submitMessage,
} from './passing.ts'
import type { ReservationMade, ReservationRequest } from './reservations.ts'

/**
 * The ledger of an installation of several processes: commands go to the process that writes the organization's ledger, and
 * an append of that process holds those of all. Who writes affects cost, never meaning. What a process that was asked
 * does not answer in time, this one does itself, as after an append whose outcome is unknown: it reads what the ledger
 * holds by now, answers what is there, and writes the rest at exactly its revision.
 */

/** Less than half of what a caller waits: what another process does not answer has to be done here, in the rest. */
const patienceDefault: Patience = { silenceMs: 1_000, answerMs: 4_000 }
/** A command is handed back where it was not looked for far enough back, and once more where a book is missing. */
const asksMax = 4
const revisionsMax = 20_000

type PassOnOptions = {
  readonly local: LocalLedger
  readonly owners: Owners
  /** Milliseconds on a clock that no one sets back. */
  readonly monotonic: () => number
  readonly patience?: Patience
  readonly observe?: Pick<LedgerObserver, 'passedOn'>
}

export const passOn = (options: PassOnOptions): Ledger => {
  const { local, owners, monotonic, patience = patienceDefault } = options
  const asking = createAsking({ monotonic, patience, passBy: owners.passBy })
  const underWay = createUnderWay()
  const revisions = createRevisions()
  const parts: Parts = { ...options, asking, revisions, patience }
  /** Asks the owner, where that is another process. */
  const routed = <Value>(
    organizationId: string,
    here: () => Promise<Value>,
    there: (owner: Peer) => Promise<Value>,
  ): Promise<Value> => {
    const route = (): Promise<Value> => {
      const owner = owners.ownerOf(organizationId)
      // A process that reads another log than before asks no one to write.
      return owner === null || local.failure()?.kind === 'rewritten' ? here() : underWay.with(there(owner))
    }
    const opening = owners.opening()
    return opening === null ? route() : underWay.with(opening.then(route))
  }
  return {
    ...local,
    submit: (organizationId, command) =>
      routed(
        organizationId,
        () => local.submit(organizationId, command),
        (owner) => submitTo(owner, organizationId, command, parts),
      ),
    figures: (organizationId, question) =>
      routed(
        organizationId,
        () => local.figures(organizationId, question),
        (owner) => figuresOfOwner(owner, organizationId, question, parts),
      ),
    reserve: (organizationId, request) =>
      routed(
        organizationId,
        () => local.reserve(organizationId, request),
        (owner) => reserveAt(owner, organizationId, request, parts),
      ),
    drain: async () => {
      await underWay.settled()
      await local.drain()
    },
  }
}

type Parts = PassOnOptions & {
  readonly asking: ReturnType<typeof createAsking>
  readonly revisions: ReturnType<typeof createRevisions>
  readonly patience: Patience
}

/** What other processes were asked, until its caller is told. */
const createUnderWay = () => {
  let count = 0
  let whenSettled: PromiseWithResolvers<void> | undefined
  const ended = (): void => {
    if (--count > 0) return
    whenSettled?.resolve()
    whenSettled = undefined
  }
  return {
    with: <Value>(asked: Promise<Value>): Promise<Value> => {
      count++
      asked.then(ended, ended)
      return asked
    },
    settled: (): Promise<void> => {
      if (count === 0) return Promise.resolve()
      whenSettled ??= Promise.withResolvers()
      return whenSettled.promise
    },
  }
}

/** Up to where each ledger is known to exist: no command that is made from now on is before. */
const createRevisions = () => {
  const known = new Map<string, number>()
  return {
    of: (organizationId: string): number | undefined => known.get(organizationId),
    learn: (organizationId: string, revision: number): void => {
      if (known.size >= revisionsMax && !known.has(organizationId)) known.clear()
      known.set(organizationId, Math.max(revision, known.get(organizationId) ?? -1))
    },
  }
}

let serials = 0

const submitTo = (
  owner: Peer,
  organizationId: string,
  command: LedgerCommand,
  parts: Parts,
): Promise<Committed> =>
  new Promise((resolve, reject) => {
    const { local, asking, revisions, observe } = parts
    const time = timeOf(command, parts)
    const book = bookOf(command)
    const bookName = book === null ? null : book.digest
    // A key that may come back was looked for by whoever sends it, up to where it says.
    const fresh = command.absentUpTo === undefined
    const known = command.absentUpTo ?? revisions.of(organizationId)
    let absentUpTo = known ?? -1
    let alone = false
    const writeHere = (passed: 'on' | undefined): void => {
      alone = true
      observe?.passedOn?.('alone')
      const elsewhere = passed === undefined ? {} : { passed, absentUpTo }
      const left = { waitMaxMs: time.leftMs() }
      local.submit(organizationId, { ...command, ...elsewhere, ...left }).then(resolve, reject)
    }
    const ask = (asks: number, withBook: PriceBook | null): void => {
      const answerMs = time.answerMs()
      const message = submitMessage(organizationId, command, {
        ...{ serial: ++serials, bookName, absentUpTo, fresh, waitMaxMs: answerMs },
      })
      const whole = withBook === null ? message : { ...message, book: bookMessage(withBook) }
      const heard = (told: PassedAnswer): void => hear(told, asks)
      const sent = asking.ask(owner, whole, { heard, late: () => writeHere('on'), answerMs })
      if (!sent) writeHere(undefined)
    }
    const hear = (told: PassedAnswer, asks: number): void => {
      if (alone) {
        if (isNotTaken(told) || told.is === 'refused') local.dropped(organizationId, command)
        return
      }
      if (told.is === 'committed') {
        revisions.learn(organizationId, told.revision)
        local.told(organizationId, told.balance)
        observe?.passedOn?.('answered')
        resolve(committedOf(told, command.requestId))
      } else if (told.is === 'refused') reject(new CommandRefused(told.message))
      else if (isNotTaken(told) && time.isUsedUp()) writeHere(undefined)
      else if (told.is === 'behind' && asks < asksMax) {
        // The owner did not take it, and it is nowhere else: it is in no part of the ledger that is there by now.
        absentUpTo = Math.max(absentUpTo, told.revision)
        revisions.learn(organizationId, told.revision)
        ask(asks + 1, null)
      } else if (told.is === 'book_missing' && asks < asksMax) ask(asks + 1, book)
      else if (isNotTaken(told)) writeHere(undefined)
      else writeHere('on')
    }
    if (known !== undefined) return ask(1, null)
    // A first command for this ledger: where its owner dies with it, the ledger is not read from its beginning to find it.
    const figures = figuresMessage(organizationId, { atMs: command.atMs }, null)
    askOwner(owner, figures, null, { asking, answerMs: time.answerMs() }).then((told) => {
      if (told?.is !== 'figures') return writeHere(undefined)
      absentUpTo = told.revision
      revisions.learn(organizationId, told.revision)
      ask(1, null)
    }, reject)
  })

/** How much of its caller's time other processes may take for a command: what they leave is for writing it here. */
const timeOf = ({ waitMaxMs = Number.POSITIVE_INFINITY }: LedgerCommand, { monotonic, patience }: Parts) => {
  const startedMs = monotonic()
  const leftMs = (): number => Math.max(0, waitMaxMs - (monotonic() - startedMs))
  return {
    leftMs,
    answerMs: (): number => Math.max(1, Math.min(patience.answerMs, leftMs() / 2)),
    isUsedUp: (): boolean => monotonic() - startedMs >= Math.min(patience.answerMs, waitMaxMs / 2),
  }
}

const isNotTaken = ({ is }: PassedAnswer): boolean =>
  is === 'behind' || is === 'book_missing' || is === 'dropped'

const figuresOfOwner = (
  owner: Peer,
  organizationId: string,
  question: FiguresQuestion,
  { local, asking, revisions }: Parts,
): Promise<Figures> => {
  const { cost } = question
  const message = figuresMessage(organizationId, question, cost === undefined ? null : cost.book.digest)
  return askOwner(owner, message, cost?.book ?? null, { asking }).then((told) => {
    if (told?.is !== 'figures') return local.figures(organizationId, question)
    revisions.learn(organizationId, told.revision)
    local.told(organizationId, told.balance)
    const { is: _, ...figures } = told
    return figures
  })
}

let reservations = 0

/** The process that counts what is held is the one that writes the ledger; where it does not answer, this one counts its own. */
const reserveAt = (
  owner: Peer,
  organizationId: string,
  request: ReservationRequest,
  { local, asking }: Parts,
): Promise<ReservationMade> => {
  const id = ++reservations
  const message = reserveMessage(organizationId, request, { id, named: request.book.digest })
  const release = (): void => void owner.ask(releaseMessage(id), () => undefined)
  return askOwner(owner, message, request.book, { asking, unheard: release }).then((told) => {
    if (told?.is === 'held') return { kind: 'held', release }
    if (told?.is === 'not_enough') return { kind: 'not_enough', held: told.held }
    return local.reserve(organizationId, request)
  })
}

/** Null: it did not answer in time, or not so that it can be understood. `unheard`: it answers after that. */
const askOwner = (
  owner: Peer,
  message: object,
  book: PriceBook | null,
  { asking, unheard, ...patience }: Pick<Parts, 'asking'> & { unheard?: () => void; answerMs?: number },
): Promise<PassedAnswer | null> =>
  new Promise((resolve) => {
    let late = false
    const ask = (withBook: boolean): void => {
      const whole = withBook && book !== null ? { ...message, book: bookMessage(book) } : message
      const sent = asking.ask(owner, whole, {
        heard: (told) => {
          if (late) unheard?.()
          else if (told.is === 'book_missing' && !withBook) ask(true)
          else resolve(told)
        },
        late: () => {
          late = true
          resolve(null)
        },
        ...patience,
      })
      if (!sent) resolve(null)
    }
    ask(false)
  })
