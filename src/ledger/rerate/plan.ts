import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { Rating } from '../../billing/tariff.ts'
import type { EventLog } from '../../event-log/port.ts'
import type { DecodedEvent } from '../../event-log/stored-event.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { availableOf, balanceOf } from '../account.ts'
import { ratingOf } from '../decide.ts'
import {
  type Corrections,
  correctionsFrom,
  correctionsOf,
  isOfCalls,
  noCorrections,
  type Seen,
} from '../explain/corrected-costs.ts'
import { type LedgerCall, type Walk, walkLedger } from '../ledger-calls.ts'
import { type CostSoFar, costAfter, type RatedCall, type RunOnLedger, repriced } from './part.ts'

/** Calculates the result of a re-rate for one ledger, without writing anything. */

type RerateTerms = Pick<RunOnLedger, 'run' | 'fromMs' | 'toMs' | 'book'>

type Log = { readonly eventLog: Pick<EventLog, 'read'> }

/** The maximum number of unaffordable requests in a plan, and of refunded ones. */
const namedMax = 20

type Asked = {
  readonly organizationId: string
  readonly terms: RerateTerms
  readonly nowMs: number
  readonly upTo?: number
  readonly onPage?: (events: number) => void
}

/** Plans a re-rate of one ledger. Returns null if the ledger has no calls in the range. */
export const planLedger = async (log: Log, asked: Asked): Promise<RerateLedgerPlanned | null> => {
  const seen: Seen[] = []
  const first = newTally()
  const planned = await walk(log, asked, { tally: first, corrections: noCorrections, seen })
  const corrected = seen.filter(({ adjustment }) => isOfCalls(adjustment))
  if (first.calls === 0 || corrected.length === 0) return planned
  // Refunds come after their calls, so the calls are read again when all refunds are known.
  const corrections = await correctionsFrom(log, asked.organizationId, corrected)
  return walk(log, { ...asked, upTo: planned?.revision ?? -1 }, { tally: newTally(), corrections, seen: [] })
}

type RefundedCall = NonNullable<RerateLedgerPlanned['refunded']>['first'][number]
type Line = { calls: number; now: MicroCredits; rerated: MicroCredits }
type Tally = ReturnType<typeof newTally>

/** A call's price in the run, and the amount available when the call was made. */
type Rated = { readonly rating: Rating; readonly available: MicroCredits }

const newTally = () => ({
  calls: 0,
  affected: 0,
  given: 0n,
  taken: 0n,
  lines: new Map<string, Line>(),
  /** The total by which calls would have cost more. */
  dearer: 0n,
  unaffordable: 0,
  first: [] as string[],
  refunded: { calls: 0, givenBack: 0n, first: [] as RefundedCall[] },
  overrides: [] as RerateLedgerPlanned['overrides'],
})

type Walking = {
  readonly tally: Tally
  readonly corrections: Corrections
  readonly seen: Seen[]
  /** Called for each call in the range, in ledger order, with its part of the adjustment. */
  readonly each?: (call: RatedCall, part: MicroCredits) => void
}

const walk = async (log: Log, asked: Asked, walking: Walking): Promise<RerateLedgerPlanned | null> => {
  const { organizationId, terms, nowMs, upTo } = asked
  const account = await walkLedger(
    log.eventLog,
    organizationId,
    walkOf(asked, walking),
    upTo === undefined ? {} : { upTo },
  )
  const { calls, affected, given, taken, lines, unaffordable, first, refunded, overrides } = walking.tally
  if (calls === 0) return null
  const available = availableOf(account, nowMs)
  return {
    run: terms.run,
    organization_id: organizationId,
    revision: account.revision,
    digest: account.digest,
    calls,
    calls_affected: affected,
    given: formatCredits(given),
    taken: formatCredits(taken),
    differences: [...lines].map(lineOf),
    balance: formatCredits(balanceOf(account, nowMs)),
    available: formatCredits(available),
    uncollected: formatCredits(atLeastZero(taken - given - atLeastZero(available))),
    unaffordable: { calls: unaffordable, first },
    overrides,
    refunded: {
      calls: refunded.calls,
      given_back: formatCredits(refunded.givenBack),
      first: refunded.first,
    },
  }
}

const walkOf = ({ terms: { fromMs, toMs, book }, onPage }: Asked, walking: Walking): Walk => {
  const { tally, corrections, seen, each } = walking
  let rated: Rated | null = null
  return {
    decided: ({ facts, atMs }, before) => {
      const isAsked = atMs >= fromMs && atMs < toMs
      rated = isAsked
        ? { rating: ratingOf(before, facts, book, atMs), available: availableOf(before, atMs) }
        : null
    },
    call: (call) => {
      if (rated === null) return
      const cost = costAfter(call, call.charged, correctionsOf(corrections, call))
      const price = rated.rating.total
      const rerated = repriced(price, cost)
      add(tally, { call, cost, rerated, ...rated })
      each?.(call, rerated - cost.now)
    },
    adjusted: ({ data, recorded }) => seen.push({ adjustment: data, revision: recorded.revision }),
    other: (event) => noteOverride(tally, event),
    page: (events) => onPage?.(events),
  }
}

const noteOverride = (tally: Tally, { type, data, recorded: { revision } }: DecodedEvent): void => {
  if (type === 'PriceOverrideSet') {
    const { sku, amount, effective_from } = data
    tally.overrides.push({
      sku,
      amount,
      effective_from,
      set_revision: revision,
      withdrawn_revision: null,
    })
  }
  if (type === 'PriceOverrideWithdrawn')
    tally.overrides = tally.overrides.map((one) =>
      one.set_revision === data.override_revision ? { ...one, withdrawn_revision: revision } : one,
    )
}

const atLeastZero = (amount: MicroCredits): MicroCredits => (amount < 0n ? 0n : amount)

/** Replaces the rule in the lines of refunds and of earlier runs, which have none. */
const corrected = '\n'

const lineOf = ([key, { calls, now, rerated }]: [
  string,
  Line,
]): RerateLedgerPlanned['differences'][number] => {
  const [sku = '', rule = ''] = key.split(' ')
  return {
    sku,
    rule: rule === corrected ? null : rule,
    calls,
    now: formatCredits(now),
    rerated: formatCredits(rerated),
  }
}

/** `rerated` is the call's new cost. */
type Priced = Rated & {
  readonly call: LedgerCall
  readonly cost: CostSoFar
  readonly rerated: MicroCredits
}

const add = (tally: Tally, priced: Priced): void => {
  const { call, cost, rerated, rating } = priced
  const { now } = cost
  tally.calls++
  const part = rerated - now
  if (part !== 0n) tally.affected++
  if (part < 0n) tally.given -= part
  else tally.taken += part
  addRefunded(tally, priced)
  addUnaffordable(tally, priced)
  if (call.charge === null && rating.total === 0n && now === 0n) return
  for (const { sku, amount, rule } of call.charge?.lines ?? [])
    lineIn(tally, sku, rule).now += parseCredits(amount)
  for (const { sku, amount, rule } of rating.lines) lineIn(tally, sku, rule).rerated += amount
  const skus = new Set(
    [...(call.charge?.lines ?? []), ...rating.lines].map(({ sku, rule }) => `${sku} ${rule}`),
  )
  for (const key of skus) {
    const line = tally.lines.get(key)
    if (line !== undefined) line.calls++
  }
  if (now === call.charged && rerated === rating.total) return
  const line = lineIn(tally, call.charge?.sku ?? rating.lines[0]?.sku ?? call.facts.kind, corrected)
  line.calls++
  line.now += now - call.charged
  line.rerated += rerated - rating.total
}

const addRefunded = ({ refunded }: Tally, { call, cost: { now, givenBack }, rerated }: Priced): void => {
  if (givenBack === 0n) return
  refunded.calls++
  refunded.givenBack += givenBack
  if (call.requestId === null || refunded.first.length === namedMax) return
  refunded.first.push({
    request_id: call.requestId,
    given_back: formatCredits(givenBack),
    now: formatCredits(now),
    rerated: formatCredits(rerated),
  })
}

const addUnaffordable = (tally: Tally, { call, cost, rating, available }: Priced): void => {
  // The call stays free, so the new price is irrelevant.
  if (cost.isGivenBackWhole) return
  if (rating.total > 0n && rating.total > available - tally.dearer) {
    tally.unaffordable++
    if (call.requestId !== null && tally.first.length < namedMax) tally.first.push(call.requestId)
  }
  tally.dearer += rating.total - call.charged
}

const lineIn = ({ lines }: Tally, sku: string, rule: string): Line => {
  const key = `${sku} ${rule}`
  const known = lines.get(key)
  if (known !== undefined) return known
  const line = { calls: 0, now: 0n, rerated: 0n }
  lines.set(key, line)
  return line
}

/**
 * Finds the last call that can be charged more if only `collected` can be collected. Additional charges are applied in ledger order until that
 * amount is used up.
 */
export const collectedUntil = async (
  log: Log,
  asked: Asked & { readonly upTo: number },
  collected: MicroCredits,
): Promise<{ revision: number; amount: MicroCredits }> => {
  const seen: Seen[] = []
  await walkLedger(
    log.eventLog,
    asked.organizationId,
    {
      call: () => undefined,
      adjusted: ({ data, recorded }) => seen.push({ adjustment: data, revision: recorded.revision }),
    },
    { upTo: asked.upTo },
  )
  const ofCalls = seen.filter(({ adjustment }) => isOfCalls(adjustment))
  const corrections = await correctionsFrom(log, asked.organizationId, ofCalls)
  let left = collected
  let until = { revision: 0, amount: 0n }
  await walk(log, asked, {
    tally: newTally(),
    corrections,
    seen: [],
    each: ({ revision }, part) => {
      if (part <= 0n || left === 0n) return
      const amount = part < left ? part : left
      left -= amount
      until = { revision, amount }
    },
  })
  return until
}
