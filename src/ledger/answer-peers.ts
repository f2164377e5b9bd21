import type { Logger } from 'pino'
import type { PriceBook } from '../billing/price-book.ts'
import type { AnswerPeer, Asker } from '../peers/peer.ts'
import { CommandRefused, type LedgerCommand, LooksTooFarBack } from './command.ts'
import type { LocalLedger } from './commit.ts'
import { LedgerUnavailable } from './options.ts'
import {
  committedMessage,
  figuresAnswer,
  notEnoughMessage,
  type PassedQuestion,
  readQuestion,
} from './passing.ts'

/** What a ledger answers other processes that pass it their commands. Nothing here decides anything. */

type Submit = Extract<PassedQuestion, { ask: 'submit' }>
type Answer = (answer: object) => void

const booksMax = 64
/** Of each connection: more than any delay lies between two copies of a message. */
const serialsMax = 10_000
/** Longer than any call waits. */
const holdMaxMs = 15_000
const tellEveryMs = 60_000

export const answerPeers = (ledger: LocalLedger, { logger }: { readonly logger: Logger }): AnswerPeer => {
  const books = createBooks()
  const askers = createAskers()
  let toldAtMs = Number.NEGATIVE_INFINITY
  return (message, from, answer) => {
    const asked = readQuestion(message)
    if (asked === null) {
      if (performance.now() - toldAtMs >= tellEveryMs) {
        toldAtMs = performance.now()
        logger.error({ processId: from.id }, 'ledger: another process asks what cannot be understood')
      }
      answer({ is: 'dropped' })
      return
    }
    const { serials, held } = askers.of(from)
    if (asked.ask !== 'release') books.keep(asked.book)
    switch (asked.ask) {
      case 'submit':
        // A copy is not answered: the first one is, and until then nothing is known.
        if (serials.takes(asked.serial)) submit(ledger, asked, books, answer)
        return
      case 'figures':
        return answerFigures(ledger, asked, books, answer)
      case 'reserve':
        return reserve(ledger, asked, books, answer, (release) => held.hold(asked.id, release))
      case 'release':
        held.release(asked.id)
        answer({ is: 'dropped' })
    }
  }
}

const submit = (
  ledger: LocalLedger,
  { organizationId, command, instruction }: Submit,
  books: Books,
  answer: Answer,
): void => {
  let whole: LedgerCommand
  if ('book' in instruction) {
    const book = books.named(instruction.book)
    if (book === undefined) {
      answer({ is: 'book_missing' })
      return
    }
    whole = { ...command, ...instruction, book, passed: 'here' }
  } else whole = { ...command, ...instruction, passed: 'here' }
  ledger.submit(organizationId, whole).then(
    (committed) => answer(committedMessage(committed)),
    (error: unknown) => answer(failureOf(error)),
  )
}

const failureOf = (error: unknown): object => {
  if (error instanceof CommandRefused) return { is: 'refused', message: error.message }
  if (error instanceof LooksTooFarBack) return { is: 'behind', revision: error.revision }
  // Whatever else it is, it happened before an append: its sender meets the same.
  return { is: error instanceof LedgerUnavailable && error.mayArrive ? 'unknown' : 'dropped' }
}

const answerFigures = (
  ledger: LocalLedger,
  { organizationId, atMs, fresh, cost }: Extract<PassedQuestion, { ask: 'figures' }>,
  books: Books,
  answer: Answer,
): void => {
  const book = cost === null ? undefined : books.named(cost.book)
  if (cost !== null && book === undefined) {
    answer({ is: 'book_missing' })
    return
  }
  const priced = cost === null || book === undefined ? {} : { cost: { ...cost, book } }
  ledger.figures(organizationId, { atMs, fresh, ...priced }).then(
    (figures) => answer(figuresAnswer(figures)),
    () => answer({ is: 'dropped' }),
  )
}

const reserve = (
  ledger: LocalLedger,
  { organizationId, atMs, cost: { facts, book: name } }: Extract<PassedQuestion, { ask: 'reserve' }>,
  books: Books,
  answer: Answer,
  hold: (release: () => void) => void,
): void => {
  const book = books.named(name)
  if (book === undefined) {
    answer({ is: 'book_missing' })
    return
  }
  ledger.reserve(organizationId, { facts, book, atMs }).then(
    (made) => {
      if (made.kind === 'held') hold(made.release)
      answer(made.kind === 'held' ? { is: 'held' } : notEnoughMessage(made.held))
    },
    () => answer({ is: 'dropped' }),
  )
}

type Books = ReturnType<typeof createBooks>

const createBooks = () => {
  const byName = new Map<string, PriceBook>()
  return {
    named: (name: string): PriceBook | undefined => byName.get(name),
    keep: (book: PriceBook | undefined): void => {
      if (book === undefined) return
      const [oldest] = byName.keys()
      if (byName.size >= booksMax && oldest !== undefined) byName.delete(oldest)
      byName.set(book.digest, book)
    },
  }
}

/** What is known of each connection of another process: what was asked on it already, and what it holds. */
const createAskers = () => {
  const askers = new WeakMap<Asker, { readonly serials: Serials; readonly held: Held }>()
  return {
    of: (asker: Asker): { readonly serials: Serials; readonly held: Held } => {
      const known = askers.get(asker)
      if (known !== undefined) return known
      const fresh = { serials: createSerials(), held: createHeld(asker) }
      askers.set(asker, fresh)
      return fresh
    },
  }
}

type Serials = ReturnType<typeof createSerials>

/**
 * A command is taken once, however often it arrives: its sender believes the first answer, also one that says that nothing
 * was written and never will be. One that may be older than all that is remembered counts as taken.
 */
const createSerials = () => {
  const taken = new Set<number>()
  /** The same in the order they came, each in the place of the one that is forgotten for it: a set finds its oldest slowly. */
  const order: number[] = []
  let next = 0
  let forgotten = 0
  return {
    takes: (serial: number): boolean => {
      if (serial <= forgotten || taken.has(serial)) return false
      const oldest = order[next]
      if (oldest !== undefined) {
        taken.delete(oldest)
        forgotten = Math.max(forgotten, oldest)
      }
      taken.add(serial)
      order[next] = serial
      next = (next + 1) % serialsMax
      return true
    },
  }
}

type Held = ReturnType<typeof createHeld>

/** What an asker holds, until it lets go of it, its time is over, or its connection ends. */
const createHeld = (asker: Asker) => {
  const held = new Map<number, () => void>()
  let gone = false
  asker.onGone(() => {
    gone = true
    for (const release of [...held.values()]) release()
  })
  return {
    release: (id: number): void => held.get(id)?.(),
    hold: (id: number, release: () => void): void => {
      // It ended while the account was read.
      if (gone) {
        release()
        return
      }
      held.get(id)?.()
      const end = (): void => {
        clearTimeout(timer)
        release()
        if (held.get(id) === end) held.delete(id)
      }
      const timer = setTimeout(end, holdMaxMs)
      timer.unref()
      held.set(id, end)
    },
  }
}
