import { LRUCache } from 'lru-cache'
import { accountSnapshots, sealedState } from '../../../projections/sealed-account.ts'
import { type LinesRange, lineSums, linesOf } from '../../../projections/statement-lines.ts'
import { formatCredits, type MicroCredits, parseCredits } from '../../billing/money.ts'
import { priceBookOf } from '../../billing/price-book.ts'
import { standingBooks } from '../../billing/prices.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { type EventLog, logStart, type Position } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import {
  type AccountTotals,
  type ComparedPage,
  columnsOf,
  type ExpectedLine,
  PricesUnknown,
  type Reconciled,
  type ReconcileOptions,
  reconcileLedger,
  totalDifferences,
} from '../../ledger/check/reconcile.ts'
import type { AdjustedEvent } from '../../ledger/ledger-calls.ts'
import { readPricesAsTheyAre } from '../../ledger/prices/price-stream.ts'
import { type RerateRun, readRun } from '../../ledger/rerate/run.ts'
import { readCheckpoints } from '../../projector/checkpoints.ts'
import type { LedgerProgress } from './ledgers.ts'
import { lastReconciled } from './reconciliations.ts'

/**
 * Compares ledgers with their read models and with the tariff. An operator can compare whole ledgers or one month. The daily job
 * compares only the events since each ledger last agreed.
 */

type Reconciling = Pick<Foundation, 'eventLog' | 'pool' | 'ledger' | 'secrets' | 'checkpoints'>

type ReconcileAsked = {
  readonly organizations: readonly string[]
  /** A range of effective times. Default: all. */
  readonly range?: { readonly fromMs: number; readonly toMs: number }
  /** If true, each ledger is compared only after the revision at which it last agreed. */
  readonly onward?: boolean
  readonly onProgress?: (progress: LedgerProgress) => void
}

const always = {
  fromMs: Date.parse('0001-01-01T00:00:00.000Z'),
  toMs: Date.parse('9999-12-31T00:00:00.000Z'),
}

export const reconcileLedgers = async (
  foundation: Reconciling,
  { organizations, range = always, onward = false, onProgress }: ReconcileAsked,
): Promise<Reconciled[]> => {
  const { eventLog, pool, ledger } = foundation
  const books = standingBooks((await readPricesAsTheyAre(eventLog)).prices).map(priceBookOf)
  const before = onward ? await lastReconciled(foundation) : new Map<string, number>()
  const found: Reconciled[] = []
  const resultOf = rerateResults(eventLog)
  for (const [n, organizationId] of organizations.entries()) {
    let events = 0
    const since = before.get(organizationId)
    // Reading starts no later than the event that set the organization's own prices, because these prices would otherwise be unknown.
    const from =
      since === undefined || (await ledger.account(organizationId)).overrides.size > 0 ? 0 : since + 1
    const row = range === always ? await accountRow(foundation, organizationId) : null
    // The position is read after the row, so that the position is not before the row's revision.
    const until = await foldedUntil(foundation)
    const own = {
      organizationId,
      books,
      until,
      ...range,
      rowRevision: row?.totals.revision ?? null,
      compare: comparing(pool, organizationId, range),
      rerated: (event: AdjustedEvent) => reratedDifference(resultOf, organizationId, event),
      onPage: (more: number) => {
        events += more
        onProgress?.({ organizationId, events, nth: n + 1, of: organizations.length })
      },
    }
    found.push(withAccount(await reconciled(eventLog, own, from), row))
  }
  return found
}

const reconciled = async (
  eventLog: EventLog,
  options: Omit<ReconcileOptions, 'from'>,
  from: number,
): Promise<Reconciled> => {
  try {
    return await reconcileLedger(eventLog, { ...options, from })
  } catch (error) {
    if (!(error instanceof PricesUnknown)) throw error
    return await reconcileLedger(eventLog, { ...options, from: 0 })
  }
}

/** `sealed`: the row is unchanged since the projector wrote it. */
type AccountRowRead = { readonly totals: AccountTotals; readonly sealed: boolean }

const withAccount = (found: Reconciled, row: AccountRowRead | null): Reconciled => {
  if (row === null) return found
  const wrong = found.totals === null ? [] : totalDifferences(found.totals, row.totals)
  if (wrong.length === 0 && !row.sealed)
    wrong.push(`its row in accounts at revision ${row.totals.revision} is not as the projector wrote it`)
  return { ...found, differences: found.differences + wrong.length, named: [...found.named, ...wrong] }
}

/** The position up to which both projections about money have been folded. */
const foldedUntil = async ({ pool }: Pick<Foundation, 'pool'>): Promise<Position> => {
  const own = (await readCheckpoints(pool)).filter(
    ({ name, state }) => state === 'live' && (name === 'ledger_lines' || name === 'accounts'),
  )
  return own.reduce<Position>(
    (least, { position }) => (position < least ? position : least),
    own[0]?.position ?? logStart,
  )
}

const accountRow = async (
  { pool, secrets }: Pick<Foundation, 'pool' | 'secrets'>,
  organizationId: string,
): Promise<AccountRowRead | null> => {
  const [row] = await rowsOf(pool, accountSnapshots([organizationId]))
  if (row === undefined) return null
  const lots = row.lots.reduce((sum, { remaining_micro }) => sum + BigInt(remaining_micro), 0n)
  const totals = {
    revision: Number(row.revision),
    balance: lots - BigInt(row.overdrawn_micro),
    granted: BigInt(row.granted_micro),
    charged: BigInt(row.charged_micro),
    expired: BigInt(row.expired_micro),
    adjusted: BigInt(row.adjusted_micro),
  }
  return { totals, sealed: sealedState(row, secrets.rowSeal) !== null }
}

type Group = {
  count: number
  amount: MicroCredits
  readonly rule: string | null
  readonly kind: string
  readonly lines: string | null
}

const keyOf = ({ kind, rule, lines }: Pick<Group, 'kind' | 'rule' | 'lines'>): string =>
  JSON.stringify([kind, rule, lines])

const unspaced = (lines: string | null): string | null =>
  lines === null ? null : JSON.stringify(JSON.parse(lines))

/** Compares the sums of a page. If the sums differ, compares line by line. */
const comparing =
  (pool: Foundation['pool'], organizationId: string, range: { fromMs: number; toMs: number }) =>
  async ({ from, to, lines, sums, skuOf }: ComparedPage): Promise<readonly string[]> => {
    const of: LinesRange = { from, to, ...range }
    const rows = await rowsOf(pool, lineSums(organizationId, of))
    const groups: Group[] = rows.map((row) => ({
      ...row,
      lines: unspaced(row.lines),
      amount: BigInt(row.amount_micro),
    }))
    for (const group of groups) addGroup(sums, skuOf, group)
    const expected = new Map<string, Group>()
    for (const line of lines) {
      const key = keyOf(line)
      const group = expected.get(key)
      if (group === undefined) expected.set(key, { ...line, count: 1 })
      else {
        group.count++
        group.amount += line.amount
      }
    }
    const isCounted = ({ kind }: Group): boolean => counted.has(kind)
    const same =
      groups.filter(isCounted).length === expected.size &&
      groups.filter(isCounted).every((group) => {
        const own = expected.get(keyOf(group))
        return own?.count === group.count && own.amount === group.amount
      })
    // If the sums agree, the lines are not compared, because the hash chain detects swapped lines with equal sums.
    return same ? [] : lineDifferences(pool, organizationId, of, lines)
  }

/** The kinds of lines that record credits or calls; all other lines count refusals. */
const counted = new Set(['call', 'adjustment', 'grant', 'expiry'])

const addGroup = (
  sums: ComparedPage['sums'],
  skuOf: ComparedPage['skuOf'],
  { kind, rule, lines, count, amount }: Group,
): void => {
  if (!counted.has(kind)) return
  if (kind !== 'call') columnsOf(sums, `(${kind})`).projections += amount
  else if (lines !== null)
    for (const { sku, amount: part } of JSON.parse(lines) as { sku: string; amount: string }[])
      columnsOf(sums, sku).projections += BigInt(count) * parseCredits(part)
  else if (amount !== 0n) columnsOf(sums, skuOf.get(rule ?? '') ?? `${rule}`).projections -= amount
}

const lineDifferences = async (
  pool: Foundation['pool'],
  organizationId: string,
  range: LinesRange,
  lines: readonly ExpectedLine[],
): Promise<string[]> => {
  const rows = await rowsOf(pool, linesOf(organizationId, range))
  const rowAt = new Map(
    rows.filter(({ kind }) => counted.has(kind)).map((row) => [Number(row.revision), row]),
  )
  const differences: string[] = []
  for (const line of lines) {
    const row = rowAt.get(line.revision)
    rowAt.delete(line.revision)
    const said =
      row === undefined
        ? 'do not have this line'
        : BigInt(row.amount_micro) !== line.amount
          ? `say ${formatCredits(BigInt(row.amount_micro))}`
          : row.kind !== line.kind || row.rule !== line.rule || unspaced(row.lines) !== line.lines
            ? `say ${row.kind} by ${row.rule}`
            : null
    if (said !== null)
      differences.push(
        `${nameOf(line)}: the log says ${formatCredits(line.amount)}${line.rule === null ? '' : ` by ${line.rule}`}, ledger_lines ${said}`,
      )
  }
  for (const [revision, { kind, request_id, amount_micro }] of rowAt)
    differences.push(
      `${nameOf({ revision, kind, requestId: request_id })}: ledger_lines say ${formatCredits(BigInt(amount_micro))}, and the log does not have this line`,
    )
  return differences
}

const nameOf = ({
  kind,
  revision,
  requestId,
}: Pick<ExpectedLine, 'kind' | 'revision' | 'requestId'>): string =>
  kind === 'call' && requestId !== null ? `request ${requestId}` : `${kind} at revision ${revision}`

/** The maximum number of runs whose results are in memory. A run has a result for each of its ledgers. */
const runsMax = 2

/** Finds a run's result for a ledger. A run is read once for all its ledgers, and again only if it has a newer result. */
const rerateResults = (eventLog: EventLog) => {
  const read = new LRUCache<string, RerateRun['done']>({ max: runsMax })
  return async (run: string, organizationId: string) => {
    const known = read.get(run)?.get(organizationId)
    if (known !== undefined) return known
    const { done } = await readRun(eventLog, run)
    read.set(run, done)
    return done.get(organizationId)
  }
}

const reratedDifference = async (
  resultOf: ReturnType<typeof rerateResults>,
  organizationId: string,
  { data, recorded }: AdjustedEvent,
): Promise<string | null> => {
  const run = data.rerate_run ?? ''
  const done = await resultOf(run, organizationId)
  const named = `adjustment at revision ${recorded.revision} by re-rate ${run}`
  if (done === undefined || !('adjustment_id' in done))
    return `${named}: the run does not record that it was applied`
  return done.adjustment_id === data.adjustment_id && done.amount === data.amount
    ? null
    : `${named}: the log says ${data.amount}, the run ${done.amount}`
}
