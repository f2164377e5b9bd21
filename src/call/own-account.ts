import type pg from 'pg'
import { thresholdOf } from '../../projections/ledger-index.ts'
import { type UsageGroup, type UsageGroupRow, usageBetween } from '../../projections/usage.ts'
import { formatCredits } from '../billing/money.ts'
import { priceBookOf } from '../billing/price-book.ts'
import { standingBooks } from '../billing/prices.ts'
import { rowsOf } from '../concurrency/query.ts'
import type { EventLog } from '../event-log/port.ts'
import { type Checkpoints, requestCheckpoint } from '../event-log/tree/checkpoints.ts'
import { type Receipt, receiptOf } from '../event-log/tree/receipt.ts'
import type { EventMetadata } from '../events/envelope.ts'
import type { PriceBookPublished } from '../events/prices.ts'
import { ledgerStream } from '../events/streams.ts'
import { availableOf, balanceOf } from '../ledger/account.ts'
import { findCall, mainCall } from '../ledger/explain/call-evidence.ts'
import { type Explanation, explain } from '../ledger/explain/explanation.ts'
import { readPricesAsTheyAre } from '../ledger/prices/price-stream.ts'
import type { Ledger } from '../ledger/write/ledger.ts'

export type { Explanation } from '../ledger/explain/explanation.ts'

/** An organization's queries about its own account. The cost of each query is bounded, no matter how long the ledger is. */

type AccountSources = {
  readonly pool: pg.Pool
  readonly eventLog: Pick<EventLog, 'read' | 'head' | 'at'>
  readonly ledger: Pick<Ledger, 'account'>
  readonly checkpoints: Pick<Checkpoints, 'last' | 'proofOfInclusion'>
}

/**
 * The maximum lag of the read models, in events. With a longer lag, partners are asked to try again later. Operators can use the
 * command line.
 */
const tailMax = 5_000
const expiringMax = 10

/** Returns null if the ledger has no individual record of a call with this id. */
export const explainOwnCall = async (
  sources: AccountSources,
  organizationId: string,
  requestId: string,
): Promise<Explanation | null> => {
  const evidence = await findCall(sources, { organizationId, requestId, tailMax })
  if (evidence === null) return null
  const books = (await publishedBooks(sources.eventLog)).map(priceBookOf)
  return explain(evidence, requestId, { ...sources, books })
}

/** `receipt` is null until a checkpoint covers the call. `ownReceipt` then requests a checkpoint. */
export type OwnReceipt = { readonly receipt: Receipt | null }

/** Returns a proof of a call for third parties. Null if the ledger has no individual record of a call with this id. */
export const ownReceipt = async (
  sources: AccountSources & { readonly queue: Parameters<typeof requestCheckpoint>[0] },
  organizationId: string,
  requestId: string,
): Promise<OwnReceipt | null> => {
  const evidence = await findCall(sources, { organizationId, requestId, tailMax })
  if (evidence === null) return null
  const { revision } = mainCall(evidence.calls).call.recorded
  const receipt = await receiptOf(sources, { stream: ledgerStream(organizationId), revision, requestId })
  if (receipt === null) await requestCheckpoint(sources.queue)
  return { receipt }
}

/** Returns every price book that is, was or will be in force. */
export const publishedBooks = async (
  eventLog: Pick<EventLog, 'read'>,
): Promise<readonly PriceBookPublished[]> => standingBooks((await readPricesAsTheyAre(eventLog)).prices)

/** The last event that the answer takes into account. */
type AsOf = { readonly revision: number; readonly position: string; readonly recorded_at: string | null }

export type OwnBalance = {
  readonly balance: string
  readonly available: string
  readonly overdraft_limit: string
  readonly threshold: string | null
  readonly expiring: readonly {
    readonly grant_id: string
    readonly remaining: string
    readonly expires_at: string
  }[]
  readonly as_of: AsOf
}

/** The figures are from the ledger. Only the threshold is from a read model, which is at most a second behind. */
export const ownBalance = async (
  { pool, eventLog, ledger }: AccountSources,
  organizationId: string,
  atMs: number,
): Promise<OwnBalance> => {
  const account = await ledger.account(organizationId)
  const [row] = await rowsOf(pool, thresholdOf(organizationId))
  const threshold = row?.amount_micro ?? null
  const { revision, overdraftLimit } = account
  const [last] = await eventLog.read(ledgerStream(organizationId), { from: revision, max: 1 })
  const recordedAt = last === undefined ? undefined : (JSON.parse(last.metadata) as EventMetadata).recorded_at
  return {
    balance: formatCredits(balanceOf(account, atMs)),
    available: formatCredits(availableOf(account, atMs)),
    overdraft_limit: formatCredits(overdraftLimit),
    threshold: threshold === null ? null : formatCredits(BigInt(threshold)),
    expiring: account.lots
      .filter(({ expiresAtMs }) => Number.isFinite(expiresAtMs) && expiresAtMs > atMs)
      .toSorted((a, b) => a.expiresAtMs - b.expiresAtMs)
      .slice(0, expiringMax)
      .map(({ grantId, remaining, expiresAtMs }) => ({
        grant_id: grantId,
        remaining: formatCredits(remaining),
        expires_at: new Date(expiresAtMs).toISOString(),
      })),
    as_of: { revision, position: String(last?.position ?? ''), recorded_at: recordedAt ?? null },
  }
}

type UsageFigures = {
  readonly calls: number
  readonly answered: number
  readonly refused: number
  readonly failed: number
  readonly rate_limited: number
  /** The original charge, without later corrections. */
  readonly charged: string
}

export type OwnUsage = {
  readonly groups: readonly ({ readonly name: string } & UsageFigures)[]
  readonly total: UsageFigures
  /** Includes everything recorded up to this position and time. */
  readonly as_of: { readonly position: string; readonly at: string }
}

/** An organization can have many keys. At most this many are listed, and the total covers only those. */
const usageGroupsMax = 10_000

export const ownUsage = async (
  { pool, eventLog }: Pick<AccountSources, 'pool' | 'eventLog'>,
  organizationId: string,
  { from, to, groupBy, atMs }: { from: string; to: string; groupBy: UsageGroup; atMs: number },
): Promise<OwnUsage> => {
  // The head is read before the rows, so that rows at this position or later contain everything recorded before the query.
  const head = await eventLog.head()
  const rows = await rowsOf(pool, usageBetween(organizationId, { from, to, groupBy, max: usageGroupsMax }))
  const position = BigInt(rows[0]?.position ?? 0)
  const last = position >= head ? null : await eventLog.at(position)
  const groups = rows.flatMap(({ name, ...row }) => (name === null ? [] : [{ name, ...figuresOf([row]) }]))
  return {
    groups,
    total: figuresOf(rows.filter(({ name }) => name !== null)),
    as_of: {
      position: position.toString(),
      at: new Date(position >= head ? atMs : (last?.recordedAtMs ?? 0)).toISOString(),
    },
  }
}

const figuresOf = (rows: readonly Omit<UsageGroupRow, 'name'>[]): UsageFigures => {
  const sum = (member: 'calls' | 'answered' | 'refused' | 'failed' | 'rate_limited'): number =>
    rows.reduce((total, row) => total + Number(row[member]), 0)
  return {
    calls: sum('calls'),
    answered: sum('answered'),
    refused: sum('refused'),
    failed: sum('failed'),
    rate_limited: sum('rate_limited'),
    charged: formatCredits(rows.reduce((total, { charged_micro }) => total + BigInt(charged_micro), 0n)),
  }
}
