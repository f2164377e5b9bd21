import { draw, drawable, drawOrder, type Lot } from '../billing/lots.ts'
import { formatCredits, type MicroCredits, parseCredits } from '../billing/money.ts'
import { overrideAt, type PriceOverrideEntry, withOverride, withoutOverride } from '../billing/tariff.ts'
import { genesisDigest } from '../event-log/hash-chain.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { LotFill } from '../events/credits.ts'

/** The current state of a ledger, folded from its events. The revision is −1 if the ledger does not exist yet. */
export type Account = {
  readonly organizationId: string
  revision: number
  digest: string
  /** The recording time of the event at `revision`, from the clock of the process that wrote it, or 0 if it is unknown. */
  recordedAtMs: number
  /** The revision after which no charge and no balance was corrected; −1 if there are no corrections. */
  adjustedRevision: number
  /** There is no re-rate after this revision. It is −1 if there are no re-rates. */
  reratedRevision: number
  registered: boolean
  name: string
  overdraftLimit: MicroCredits
  /** The charged amount that no lot could pay. If it is above zero, all lots are empty. */
  overdrawn: MicroCredits
  /** The lots that are not empty, in draw order. */
  lots: Lot[]
  /** The organization's own prices by SKU, oldest first. An entry with amount null means that the price book applies again. */
  overrides: Map<string, readonly PriceOverrideEntry[]>
}

export const newAccount = (organizationId: string): Account => ({
  organizationId,
  revision: -1,
  digest: genesisDigest,
  recordedAtMs: 0,
  adjustedRevision: -1,
  reratedRevision: -1,
  registered: false,
  name: '',
  overdraftLimit: 0n,
  overdrawn: 0n,
  lots: [],
  overrides: new Map(),
})

/** Copies an account, so that a batch can be decided on the copy. If another process appends first, the copy is discarded. */
export const draftOf = (account: Account): Account => ({
  ...account,
  lots: account.lots.map((lot) => ({ ...lot })),
  overrides: new Map(account.overrides),
})

/** The balance at an instant: all unexpired lots, minus the overdraft. Can be negative. */
export const balanceOf = (account: Account, atMs: number): MicroCredits =>
  drawable(account.lots, atMs) - account.overdrawn

/** The amount that can be charged at an instant before the overdraft limit is reached. */
export const availableOf = (account: Account, atMs: number): MicroCredits =>
  balanceOf(account, atMs) + account.overdraftLimit

/** The organization's own price for a SKU at an instant, or undefined if the price book applies. */
export const overrideOf = (account: Account, sku: string, atMs: number): MicroCredits | undefined =>
  overrideAt(account.overrides.get(sku), atMs)?.amount ?? undefined

/** Folds a ledger event into the account, in place. The caller must set `digest`. */
export const evolve = (account: Account, event: LedgerEvent, revision: number): void => {
  account.revision = revision
  switch (event.type) {
    case 'OrganizationRegistered':
      account.registered = true
      account.name = event.data.name
      account.overdraftLimit = parseCredits(event.data.overdraft_limit)
      return
    case 'CreditGranted':
      grant(account, {
        grantId: event.data.grant_id,
        priority: event.data.priority,
        expiresAt: event.data.expires_at,
        amount: parseCredits(event.data.amount),
        overdraftRepaid: parseCredits(event.data.overdraft_repaid),
        revision,
      })
      return
    case 'CreditExpired':
      take(account, [event.data])
      return
    case 'PriceOverrideSet': {
      const { sku, amount, effective_from } = event.data
      const entry = {
        revision,
        amount: amount === null ? null : parseCredits(amount),
        fromMs: Date.parse(effective_from),
      }
      account.overrides.set(sku, withOverride(account.overrides.get(sku), entry))
      return
    }
    case 'PriceOverrideWithdrawn': {
      const { sku, override_revision } = event.data
      account.overrides.set(sku, withoutOverride(account.overrides.get(sku), override_revision))
      return
    }
    case 'CreditCharged':
      charge(account, parseCredits(event.data.amount), event.data.allocations)
      return
    case 'CreditAdjusted': {
      const amount = parseCredits(event.data.amount)
      account.adjustedRevision = revision
      if (event.data.rerate_run !== null) account.reratedRevision = revision
      if (amount < 0n) {
        charge(account, -amount, event.data.allocations)
        return
      }
      grant(account, {
        grantId: event.data.adjustment_id,
        priority: 0,
        expiresAt: null,
        amount: amount - fill(account, event.data.fills),
        overdraftRepaid: parseCredits(event.data.overdraft_repaid),
        revision,
      })
      return
    }
    case 'BalanceThresholdSet':
    case 'MonthClosed':
    case 'KeyUsed':
    case 'RateLimitExceeded':
    case 'CallsRefused':
    case 'LedgerFenced':
      return
  }
}

type Granted = {
  grantId: string
  priority: number
  expiresAt: string | null
  amount: MicroCredits
  overdraftRepaid: MicroCredits
  revision: number
}

const grant = (
  account: Account,
  { grantId, priority, expiresAt, amount, overdraftRepaid, revision }: Granted,
): void => {
  const remaining = amount - overdraftRepaid
  if (remaining < 0n || overdraftRepaid < 0n || overdraftRepaid > account.overdrawn)
    throw new Error(`grant ${grantId} repays more than its amount or the overdraft`)
  if (account.lots.some((lot) => lot.grantId === grantId)) throw new Error(`lot ${grantId} was granted twice`)
  account.overdrawn -= overdraftRepaid
  if (remaining === 0n) return
  const expiresAtMs = expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt)
  account.lots.push({ grantId, priority, expiresAtMs, revision, granted: amount, remaining })
  account.lots.sort(drawOrder)
}

/** Returns amounts to their lots, and reopens lots that were empty. Returns the total. */
const fill = (account: Account, fills: readonly LotFill[]): MicroCredits => {
  let given = 0n
  for (const { grant_id, amount, priority, expires_at, revision, granted } of fills) {
    const part = parseCredits(amount)
    if (part < 0n) throw new Error(`${amount} credits are returned to lot ${grant_id}`)
    given += part
    const lot = account.lots.find(({ grantId }) => grantId === grant_id)
    if (lot !== undefined) lot.remaining += part
    else
      account.lots.push({
        grantId: grant_id,
        priority,
        expiresAtMs: expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at),
        revision,
        granted: parseCredits(granted),
        remaining: part,
      })
  }
  account.lots.sort(drawOrder)
  return given
}

/** Takes an amount from lots. The rest is overdrawn. */
const charge = (
  account: Account,
  amount: MicroCredits,
  allocations: readonly { grant_id: string; amount: string }[],
): void => {
  const overdrawn = amount - take(account, allocations)
  if (overdrawn < 0n) throw new Error('more credits are taken from lots than are charged')
  account.overdrawn += overdrawn
}

/** Takes amounts from lots, and removes lots that become empty. Returns the total. */
const take = (
  account: Account,
  allocations: readonly { grant_id: string; amount: string }[],
): MicroCredits => {
  let taken = 0n
  let emptied = false
  for (const { grant_id, amount } of allocations) {
    const lot = account.lots.find(({ grantId }) => grantId === grant_id)
    const part = parseCredits(amount)
    if (lot === undefined || part < 0n || lot.remaining < part)
      throw new Error(
        `ledger of ${account.organizationId}: ${amount} credits cannot be taken from lot ${grant_id}, which contains less`,
      )
    lot.remaining -= part
    taken += part
    emptied ||= lot.remaining === 0n
  }
  if (emptied) account.lots = account.lots.filter(({ remaining }) => remaining > 0n)
  return taken
}

/** The lots that pay an amount, in the form that charges and negative adjustments record. */
export const allocationsFor = (account: Account, amount: MicroCredits, atMs: number) =>
  draw(account.lots, amount, atMs).allocations

/** The part of a new grant that repays the overdraft, as a decimal string. */
export const repaidBy = (account: Account, amount: MicroCredits): string =>
  formatCredits(account.overdrawn < amount ? account.overdrawn : amount)
