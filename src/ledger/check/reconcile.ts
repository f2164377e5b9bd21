import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { PriceBook } from '../../billing/price-book.ts'
import { NoRule, type Rating } from '../../billing/tariff.ts'
import { type EventLog, EventsUnreadable, type Position } from '../../event-log/port.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import { type Account, balanceOf, evolve } from '../account.ts'
import { ratingOf } from '../decide.ts'
import { type AdjustedEvent, type LedgerCall, walkLedger } from '../ledger-calls.ts'
import { createInForce } from '../prices/price-books.ts'
import type { RatedCall } from '../rerate/part.ts'

/**
 * Compares a ledger's events with the lines of the read model and with the tariff, one page at a time, so that a difference can be
 * located within a few thousand lines.
 */

/** A line that the read model should contain. */
export type ExpectedLine = {
  readonly revision: number
  readonly kind: string
  readonly requestId: string | null
  readonly rule: string | null
  /** The lines of the charge as JSON, or null if there is only one line. */
  readonly lines: string | null
  readonly amount: MicroCredits
}

type Columns = { log: MicroCredits; projections: MicroCredits; tariff: MicroCredits }

/** Sums by SKU. For movements other than charges, the key is the kind of movement in brackets, and the amount of the tariff is zero. */
type Sums = Map<string, Columns>

export type Reconciled = {
  readonly organizationId: string
  /** The first and the last revision of the page, both inclusive. */
  readonly from: number
  readonly through: number
  readonly calls: number
  readonly sums: Sums
  readonly differences: number
  /** The descriptions of the first differences on this page. */
  readonly named: readonly string[]
  /** The totals at the revision of the account's row, or null if the ledger was not read from its beginning. */
  readonly totals: AccountTotals | null
}

/** An account's totals at a revision, from the ledger or from its row. They include expired lots that are not yet written off. */
export type AccountTotals = {
  readonly revision: number
} & Readonly<Record<(typeof totalsCompared)[number], MicroCredits>>

const totalsCompared = ['balance', 'granted', 'charged', 'expired', 'adjusted'] as const

export type ReconcileOptions = {
  readonly organizationId: string
  readonly books: readonly PriceBook[]
  readonly from: number
  /** The position up to which the read models contain events. */
  readonly until: Position
  readonly fromMs: number
  readonly toMs: number
  readonly rowRevision: number | null
  /** Compares a page with the lines of the read models, and adds these to the sums. Resolves with the differences. */
  readonly compare: (page: ComparedPage) => Promise<readonly string[]>
  /** Describes the difference between an adjustment and the plan of its re-rate. Resolves with null if there is none. */
  readonly rerated: (event: AdjustedEvent) => Promise<string | null>
  readonly onPage?: (events: number) => void
}

export type ComparedPage = {
  readonly from: number
  readonly to: number
  readonly lines: readonly ExpectedLine[]
  readonly sums: Sums
  /** The SKU of each rule, for charges with a single line. */
  readonly skuOf: ReadonlyMap<string, string>
}

const namedMax = 20

export class PricesUnknown extends Error {
  override name = 'PricesUnknown'
}

/**
 * Compares one ledger. Throws `PricesUnknown` if a price that was set before `from` is needed, so that the ledger must be read from its
 * beginning.
 */
export const reconcileLedger = async (
  eventLog: Pick<EventLog, 'read'>,
  options: ReconcileOptions,
): Promise<Reconciled> => {
  const { organizationId, from, until, compare, rerated, rowRevision, onPage } = options
  const work = newWork(options)
  const result = { differences: 0, named: [] as string[] }
  const add = (differences: readonly string[]): void => {
    result.differences += differences.length
    result.named.push(...differences.slice(0, namedMax - result.named.length))
  }
  let next = from
  let totals: AccountTotals | null = null
  await walkLedger(
    eventLog,
    organizationId,
    {
      decided: work.decided,
      call: work.call,
      adjusted: work.adjusted,
      other: work.other,
      page: async (events, complete) => {
        onPage?.(events)
        if (complete < next) return
        const { lines, faults, adjusted } = work.take()
        add(faults)
        for (const event of adjusted) add([await rerated(event)].filter((fault) => fault !== null))
        add(await compare({ from: next, to: complete, lines, sums: work.sums, skuOf: work.skuOf }))
        next = complete + 1
      },
    },
    {
      from,
      until,
      fold: from === 0 ? folding(rowRevision, (found) => (totals = found)) : pricesOnly,
    },
  ).catch((error: unknown) => {
    // The other ledgers are still compared.
    if (!(error instanceof EventsUnreadable)) throw error
    add([error.message])
  })
  return {
    organizationId,
    from,
    through: next - 1,
    calls: work.calls(),
    sums: work.sums,
    ...result,
    totals,
  }
}

const folding = (rowRevision: number | null, found: (totals: AccountTotals) => void) => {
  const sums = { granted: 0n, charged: 0n, expired: 0n, adjusted: 0n }
  return (account: Account, event: LedgerEvent, revision: number): void => {
    evolve(account, event, revision)
    if (event.type === 'CreditGranted') sums.granted += parseCredits(event.data.amount)
    else if (event.type === 'CreditCharged') sums.charged += parseCredits(event.data.amount)
    else if (event.type === 'CreditExpired') sums.expired += parseCredits(event.data.amount)
    else if (event.type === 'CreditAdjusted') sums.adjusted += parseCredits(event.data.amount)
    if (revision === rowRevision)
      found({ revision, balance: balanceOf(account, Number.NEGATIVE_INFINITY), ...sums })
  }
}

/** Folds only prices, because lots cannot be folded from the middle of a ledger. */
const pricesOnly = (account: Account, event: LedgerEvent, at: number): void => {
  if (event.type === 'PriceOverrideSet') evolve(account, event, at)
  if (event.type !== 'PriceOverrideWithdrawn') return
  const { sku, override_revision } = event.data
  if (account.overrides.get(sku)?.some(({ revision }) => revision === override_revision) !== true)
    throw new PricesUnknown('the ledger withdraws a price that was set before the first event that was read')
  evolve(account, event, at)
}

type Rated = { readonly rating: Rating | null; readonly fault: string | null }

const newWork = ({ books, fromMs, toMs }: ReconcileOptions) => {
  const sums: Sums = new Map()
  const skuOf = new Map<string, string>()
  let lines: ExpectedLine[] = []
  let faults: string[] = []
  let reratings: AdjustedEvent[] = []
  let calls = 0
  let decidedOn: Account | null = null
  const isAsked = (atMs: number): boolean => atMs >= fromMs && atMs < toMs
  const inForce = createInForce(books)
  const movement = (event: DecodedEvent, kind: string, amount: MicroCredits): void => {
    if (!isAsked(Date.parse(event.metadata.effective_at))) return
    columnsOf(sums, `(${kind})`).log += amount
    const requestId = event.metadata.request_id ?? null
    lines.push({ revision: event.recorded.revision, kind, requestId, rule: null, lines: null, amount })
  }
  return {
    sums,
    skuOf,
    calls: () => calls,
    // The account still contains the prices that applied to the call.
    decided: (_call: RatedCall, account: Account): void => {
      decidedOn = account
    },
    call: (call: LedgerCall): void => {
      if (!isAsked(call.atMs)) return
      calls++
      lines.push(lineOf(call))
      const account = decidedOn
      if (account === null) return
      const book = (): PriceBook => bookOf(books, call, inForce(call.atMs))
      const rated = ratedAs(() => ratingOf(account, call.facts, book(), call.atMs))
      const fault = addCall(sums, skuOf, call, rated)
      if (fault !== null) faults.push(fault)
    },
    adjusted: (event: AdjustedEvent): void => {
      if (event.data.rerate_run !== null && event.data.adjusts === null) reratings.push(event)
      movement(event, 'adjustment', parseCredits(event.data.amount))
    },
    other: (event: DecodedEvent): void => {
      if (event.type === 'CreditGranted') movement(event, 'grant', parseCredits(event.data.amount))
      if (event.type === 'CreditExpired') movement(event, 'expiry', -parseCredits(event.data.amount))
    },
    take: () => {
      const taken = { lines, faults, adjusted: reratings }
      lines = []
      faults = []
      reratings = []
      return taken
    },
  }
}

/** The price book of a call. If several took effect at the same time, it is the one in the charge. */
const bookOf = (
  books: readonly PriceBook[],
  { charge }: LedgerCall,
  latest: PriceBook | undefined,
): PriceBook => {
  if (latest === undefined) throw new NoRule('no price book was in force')
  const named = books.find(
    ({ version, effectiveFromMs }) =>
      version === charge?.price_book_version && effectiveFromMs === latest.effectiveFromMs,
  )
  return named ?? latest
}

const ratedAs = (rating: () => Rating): Rated => {
  try {
    return { rating: rating(), fault: null }
  } catch (error) {
    if (error instanceof NoRule) return { rating: null, fault: error.message }
    throw error
  }
}

export const columnsOf = (sums: Sums, sku: string): Columns => {
  const known = sums.get(sku)
  if (known !== undefined) return known
  const columns = { log: 0n, projections: 0n, tariff: 0n }
  sums.set(sku, columns)
  return columns
}

const lineOf = ({ revision, requestId, charge, charged, freeBy }: LedgerCall): ExpectedLine => ({
  revision,
  kind: 'call',
  requestId,
  rule: charge?.rule ?? freeBy,
  lines: charge !== null && charge.lines.length > 1 ? JSON.stringify(charge.lines) : null,
  amount: -charged,
})

/** Adds a call to the sums. Returns a description of its difference from the tariff, or null. */
const addCall = (
  sums: Sums,
  skuOf: Map<string, string>,
  { charge, charged, requestId, eventId }: LedgerCall,
  { rating, fault }: Rated,
): string | null => {
  const lines = charge?.lines ?? []
  for (const { sku, amount } of lines) columnsOf(sums, sku).log += parseCredits(amount)
  if (charge !== null && lines.length === 1) skuOf.set(charge.rule, charge.sku)
  for (const { sku, amount } of rating?.lines ?? []) columnsOf(sums, sku).tariff += amount
  const named = `request ${requestId ?? eventId}`
  if (rating === null) return fault === null ? null : `${named}: ${fault}`
  const same =
    rating.total === charged &&
    lines.length === rating.lines.length &&
    lines.every(({ sku, amount, rule }, i) => {
      const given = rating.lines[i]
      return given?.sku === sku && given.rule === rule && given.amount === parseCredits(amount)
    })
  return same
    ? null
    : `${named}: the log charges ${formatCredits(charged)}, but its facts, the tariff and price book ${rating.priceBookVersion} result in ${formatCredits(rating.total)}`
}

/** Describes each difference between the ledger and the account's row in the read models. */
export const totalDifferences = (log: AccountTotals, row: AccountTotals): string[] =>
  totalsCompared
    .filter((name) => log[name] !== row[name])
    .map(
      (name) =>
        `the log results in ${name === 'balance' ? 'a balance of ' : `${name} `}${formatCredits(log[name])} at revision ${log.revision}, but the row in accounts has ${formatCredits(row[name])}`,
    )
