import { formatCredits, type MicroCredits, parseCredits } from '../billing/money.ts'
import { closingGapMax } from '../billing/months.ts'
import type { LotFill, MonthClosed } from '../events/credits.ts'
import { type Account, allocationsFor, availableOf, repaidBy } from './account.ts'
import type { Instruction } from './command.ts'
import { type Decision, ifRegistered } from './decide.ts'

/** Decides corrections of charges, balances and lots. Pure. */

type Adjustment = Omit<Extract<Instruction, { kind: 'adjust' }>, 'kind'> & {
  readonly adjustmentId: string
  readonly atMs: number
}

/**
 * Corrects a charge or a balance. A positive amount repays the overdraft first. A negative amount is taken from lots, and is limited to
 * the amount that could be charged (decision 13).
 */
export const adjustCredits = (account: Account, adjustment: Adjustment): Decision => {
  const { adjustmentId, adjusts, reason, rerateRun, into = [], unlessAdjustedAfter, atMs } = adjustment
  for (const [corrected, after] of [
    [account.adjustedRevision, unlessAdjustedAfter],
    [account.reratedRevision, adjustment.unlessReratedAfter],
  ] as const)
    if (after !== undefined && corrected > after)
      return {
        refused: `the ledger was corrected meanwhile: read it again from revision ${after + 1}`,
        changed: true,
      }
  const available = availableOf(account, atMs)
  const amount =
    adjustment.upToAvailable === true ? noMoreThan(available, adjustment.amount) : adjustment.amount
  if (amount < 0n && -amount > available)
    return {
      refused: `${formatCredits(-amount)} credits cannot be taken: ${formatCredits(available)} are available`,
    }
  const overdraftRepaid = amount < 0n ? '0' : repaidBy(account, amount)
  return ifRegistered(account, () => ({
    type: 'CreditAdjusted',
    data: {
      adjustment_id: adjustmentId,
      adjusts,
      amount: formatCredits(amount),
      reason,
      rerate_run: rerateRun,
      allocations: amount < 0n ? allocationsFor(account, -amount, atMs) : [],
      overdraft_repaid: overdraftRepaid,
      kind: adjustment.correction ?? 'adjustment',
      fills: amount < 0n ? [] : fillsOf(into, amount - parseCredits(overdraftRepaid), atMs),
      reference: adjustment.reference ?? null,
      charged_at: adjustment.chargedAt ?? null,
    },
  }))
}

/** Limits a negative amount to the available credits. */
const noMoreThan = (available: MicroCredits, amount: MicroCredits): MicroCredits => {
  const most = available < 0n ? 0n : -available
  return amount < most ? most : amount
}

/** The part of an amount that returns to each unexpired lot, in the order and up to the amounts of `into`. */
const fillsOf = (into: readonly LotFill[], amount: MicroCredits, atMs: number): LotFill[] => {
  const fills: LotFill[] = []
  let left = amount
  for (const lot of into) {
    if (left === 0n) break
    if (lot.expires_at !== null && Date.parse(lot.expires_at) <= atMs) continue
    const most = parseCredits(lot.amount)
    const part = most < left ? most : left
    if (part === 0n) continue
    fills.push({ ...lot, amount: formatCredits(part) })
    left -= part
  }
  return fills
}

/** Takes back the rest of a lot. An expired lot is refused, because its rest is written off. */
export const voidLot = (
  account: Account,
  {
    adjustmentId,
    grantId,
    reason,
    atMs,
  }: { adjustmentId: string; grantId: string; reason: string; atMs: number },
): Decision => {
  const lot = account.lots.find((one) => one.grantId === grantId)
  if (lot === undefined) return { refused: `lot ${grantId} has nothing left, or does not exist` }
  if (lot.expiresAtMs <= atMs) return { refused: `lot ${grantId} expired at ${instant(lot.expiresAtMs)}` }
  return ifRegistered(account, () => ({
    type: 'CreditAdjusted',
    data: {
      adjustment_id: adjustmentId,
      adjusts: null,
      amount: formatCredits(-lot.remaining),
      reason,
      rerate_run: null,
      allocations: [{ grant_id: grantId, amount: formatCredits(lot.remaining) }],
      overdraft_repaid: '0',
      kind: 'void',
      fills: [],
      reference: null,
      charged_at: null,
    },
  }))
}

/**
 * Writes off the rest of a lot, which must have expired both at `atMs` and at `nowMs`, the current time in the appending process. Returns
 * no event for an empty lot.
 */
export const expireLot = (
  account: Account,
  { grantId, atMs, nowMs }: { grantId: string; atMs: number; nowMs: number },
): Decision => {
  const lot = account.lots.find((one) => one.grantId === grantId)
  if (lot === undefined) return []
  if (lot.expiresAtMs > atMs)
    return {
      refused:
        lot.expiresAtMs === Number.POSITIVE_INFINITY
          ? `lot ${grantId} never expires`
          : `lot ${grantId} expires at ${instant(lot.expiresAtMs)}, so it cannot be written off as of ${instant(atMs)}`,
    }
  if (atMs > nowMs)
    return {
      refused: `lot ${grantId} cannot be written off as of ${instant(atMs)}: the clock of the process that writes the ledger shows ${instant(nowMs)}`,
    }
  return [{ type: 'CreditExpired', data: { grant_id: grantId, amount: formatCredits(lot.remaining) } }]
}

const instant = (ms: number): string => new Date(ms).toISOString()

/**
 * Records a month's totals. Refused if there are too many events after the last one that counts, because readers look for closings only
 * `closingGapMax` events ahead.
 */
export const closeMonth = (account: Account, closed: MonthClosed): Decision =>
  account.revision - closed.through_revision >= closingGapMax
    ? { refused: `the ledger has moved on since revision ${closed.through_revision}`, changed: true }
    : ifRegistered(account, () => ({ type: 'MonthClosed', data: closed }))
