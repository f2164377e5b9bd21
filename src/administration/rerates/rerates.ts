import { ulid } from 'ulid'
import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { priceBookOf } from '../../billing/price-book.ts'
import { publishedAt } from '../../billing/prices.ts'
import { appendNext } from '../../event-log/append-next.ts'
import type { NewEvent } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import type { RerateLedgerPlanned, RerateProposed } from '../../events/rerates.ts'
import { rerateStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { readPrices } from '../../ledger/prices/price-stream.ts'
import { planLedger } from '../../ledger/rerate/plan.ts'
import { planDigest, pricesOf } from '../../ledger/rerate/run.ts'
import type { PricesGiven } from '../fields.ts'
import { InputFault } from '../input.ts'
import type { LedgerProgress } from '../ledgers/ledgers.ts'
import { rulesNamed } from '../prices/price-diff.ts'
import { namedPrices } from '../prices/prices.ts'
import { signPlan } from './proof.ts'

/** Plans a re-rate, which calculates the cost of past calls under other prices. Ledgers are only read. */

/** The prices of a published book, or given prices, whose `version` is null. */
type PlanBook = RerateProposed['book']

/**
 * The prices of a published book, of a proposal, or of given rules. It is enough to give the rules that differ from the book in
 * force at `from`. Throws `CommandRefused`, or an `InputFault` about the field `book`.
 */
export const pricesNamed = async (
  foundation: Pick<Foundation, 'eventLog'>,
  given: PricesGiven,
  { from }: { readonly from: string },
): Promise<PlanBook> => {
  if (given.kind === 'book') {
    const { effective_from, rules } = await namedPrices(foundation, given)
    return planBook(given.number, { effective_from, rules })
  }
  const over = publishedAt((await readPrices(foundation.eventLog)).prices, Date.parse(from))?.rules ?? []
  const { rules } = await rulesNamed(foundation, given, { field: 'book', over })
  // Prices that were never published count as a book that is in force from the beginning of the range.
  return planBook(null, { effective_from: from, rules: [...rules] })
}

const planBook = (
  version: number | null,
  { effective_from, rules }: Pick<PlanBook, 'effective_from' | 'rules'>,
): PlanBook => ({
  version,
  effective_from,
  digest: priceBookOf(pricesOf({ version, effective_from, rules })).digest,
  rules,
})

type RerateAsked = {
  readonly book: PlanBook
  readonly from: string
  readonly to: string
  /** The organization whose calls are re-rated; null for all organizations. */
  readonly organizationId: string | null
  readonly organizations: readonly string[]
  readonly reason: string
  readonly actor: string
}

export type ReratePlan = {
  readonly proposed: RerateProposed
  readonly ledgers: readonly RerateLedgerPlanned[]
}

/** Throws `InputFault` if the range is invalid or does not lie in the past. */
export const checkRange = (from: string, to: string, nowMs: number): void => {
  if (Date.parse(to) <= Date.parse(from)) throw new InputFault('to', `${to} is not after ${from}`)
  if (Date.parse(to) > nowMs)
    throw new InputFault('to', `${to} is in the future: only past calls can be priced again`)
}

/** Reads every ledger and records the plan as a new run. Throws `CommandRefused` if no call is in the range. */
export const planRerate = async (
  foundation: Pick<Foundation, 'eventLog' | 'checkpoints' | 'secrets'>,
  { book, from, to, organizationId, organizations, reason, actor }: RerateAsked,
  onProgress: (progress: LedgerProgress) => void,
): Promise<ReratePlan> => {
  const run = `rr_${ulid()}`
  const terms = {
    run,
    fromMs: Date.parse(from),
    toMs: Date.parse(to),
    book: priceBookOf(pricesOf(book)),
  }
  const writer = planWriter(foundation, run, actor)
  const ledgers: RerateLedgerPlanned[] = []
  for (const [n, id] of organizations.entries()) {
    let events = 0
    const planned = await planLedger(foundation, {
      organizationId: id,
      terms,
      nowMs: Date.now(),
      onPage: (more) => {
        events += more
        onProgress({ organizationId: id, events, nth: n + 1, of: organizations.length })
      },
    })
    if (planned === null) continue
    ledgers.push(planned)
    await writer.add({ type: 'RerateLedgerPlanned', data: planned })
  }
  if (ledgers.length === 0) throw new CommandRefused(`no calls were made from ${from} to ${to}`)
  const plan = {
    run,
    from,
    to,
    organization_id: organizationId,
    book,
    reason,
    ledgers: ledgers.length,
    calls: sumOf(ledgers, ({ calls }) => calls),
    calls_affected: sumOf(ledgers, ({ calls_affected }) => calls_affected),
    given: creditsOf(ledgers, ({ given }) => given),
    taken: creditsOf(ledgers, ({ taken }) => taken),
  }
  const digest = planDigest(plan, ledgers)
  const proposed = { ...plan, plan_digest: digest, signature: await signPlan(foundation, digest) }
  await writer.add({ type: 'RerateProposed', data: proposed })
  await writer.flush()
  return { proposed, ledgers }
}

const sumOf = <One>(all: readonly One[], of: (one: One) => number): number =>
  all.reduce((sum, one) => sum + of(one), 0)

const creditsOf = <One>(all: readonly One[], of: (one: One) => string): string =>
  formatCredits(all.reduce<MicroCredits>((sum, one) => sum + parseCredits(of(one)), 0n))

/** Far below any engine's limit for one append. */
const bytesPerAppend = 250_000
const eventsPerAppend = 200

/** Writes a plan into the run's stream, which is new and has no other writer. */
const planWriter = ({ eventLog }: Pick<Foundation, 'eventLog'>, run: string, actor: string) => {
  const stream = rerateStream(run)
  let written = 0
  let waiting: NewEvent[] = []
  let bytes = 0
  const flush = async (): Promise<void> => {
    if (waiting.length > 0) await appendNext(eventLog, stream, waiting)
    waiting = []
    bytes = 0
  }
  return {
    flush,
    add: async (event: DomainEvent): Promise<void> => {
      const encoded = encodeEvent(event, {
        id: eventIdOf(stream, `plan/${written++}`, 0),
        actor,
        effectiveAt: new Date().toISOString(),
      })
      if (bytes + encoded.data.length > bytesPerAppend || waiting.length === eventsPerAppend) await flush()
      waiting.push(encoded)
      bytes += encoded.data.length
    },
  }
}
