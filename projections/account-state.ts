import { microOf } from './micro.ts'
import type { ProjectedEvent } from './projection.ts'

/** An account with its totals, and with the changes that are not yet written to its rows. Times are in milliseconds since the epoch. */
export type AccountState = {
  readonly organizationId: string
  name: string | null
  registeredAtMs: number | null
  revision: number
  digest: string
  overdraftLimit: bigint
  overdrawn: bigint
  granted: bigint
  charged: bigint
  expired: bigint
  adjusted: bigint
  readonly lots: Map<string, LotState>
  overrides: OverrideState[]
  /** If false, the existing rows of the account are replaced as a whole, because they can be wrong. */
  written: boolean
  readonly changed: {
    readonly lots: Map<string, LotState>
    readonly overrides: OverrideState[]
    readonly withdrawn: number[]
  }
}

export type LotState = {
  readonly grantId: string
  readonly priority: number
  readonly expiresAtMs: number | null
  readonly revision: number
  readonly granted: bigint
  readonly remaining: bigint
}

export type OverrideState = {
  readonly revision: number
  readonly sku: string
  readonly amount: bigint | null
  readonly fromMs: number
}

/** An account before the first event of its ledger. */
export const initialState = (organizationId: string): AccountState => ({
  organizationId,
  name: null,
  registeredAtMs: null,
  revision: -1,
  digest: '',
  overdraftLimit: 0n,
  overdrawn: 0n,
  granted: 0n,
  charged: 0n,
  expired: 0n,
  adjusted: 0n,
  lots: new Map(),
  overrides: [],
  written: false,
  changed: { lots: new Map(), overrides: [], withdrawn: [] },
})

/**
 * Folds the ledger's next event into the account, in place. Throws if the ledger breaks its own rules, for example if a
 * revision is missing, or if more credits are taken from a lot than it contains.
 */
export const evolve = (state: AccountState, event: ProjectedEvent): void => {
  if (event.revision !== state.revision + 1)
    throw new Error(`revision ${event.revision} follows revision ${state.revision}`)
  switch (event.type) {
    case 'OrganizationRegistered':
      state.name = event.data.name
      state.registeredAtMs = Date.parse(event.metadata.effective_at)
      state.overdraftLimit += microOf(event.data.overdraft_limit)
      break
    case 'CreditGranted': {
      const { grant_id, priority, expires_at, amount, overdraft_repaid } = event.data
      state.granted += microOf(amount)
      const lot = { grantId: grant_id, priority, expiresAt: expires_at, overdraft_repaid, event }
      grant(state, { ...lot, amount: microOf(amount) })
      break
    }
    case 'CreditExpired':
      state.expired += microOf(event.data.amount)
      take(state, [event.data])
      break
    case 'CreditCharged':
      state.charged += microOf(event.data.amount)
      charge(state, microOf(event.data.amount), event.data.allocations)
      break
    case 'CreditAdjusted': {
      const { adjustment_id, amount, allocations, overdraft_repaid, fills } = event.data
      const micro = microOf(amount)
      state.adjusted += micro
      if (micro < 0n) charge(state, -micro, allocations)
      else
        grant(state, {
          grantId: adjustment_id,
          priority: 0,
          expiresAt: null,
          amount: micro - fill(state, fills),
          overdraft_repaid,
          event,
        })
      break
    }
    case 'PriceOverrideSet': {
      const { sku, amount, effective_from } = event.data
      const override = {
        revision: event.revision,
        sku,
        amount: amount === null ? null : microOf(amount),
        fromMs: Date.parse(effective_from),
      }
      state.overrides.push(override)
      state.changed.overrides.push(override)
      break
    }
    case 'PriceOverrideWithdrawn': {
      const gone = event.data.override_revision
      state.overrides = state.overrides.filter(({ revision }) => revision !== gone)
      state.changed.withdrawn.push(gone)
    }
  }
  state.revision = event.revision
  state.digest = event.metadata.digest
}

const grant = (
  state: AccountState,
  granted: {
    grantId: string
    priority: number
    expiresAt: string | null
    amount: bigint
    overdraft_repaid: string
    event: ProjectedEvent
  },
): void => {
  const { grantId, priority, expiresAt, event } = granted
  const repaid = microOf(granted.overdraft_repaid)
  if (repaid < 0n || repaid > state.overdrawn || repaid > granted.amount)
    throw new Error(`grant ${grantId} repays more than its amount or the overdraft`)
  if (state.lots.has(grantId)) throw new Error(`lot ${grantId} was granted twice`)
  state.overdrawn -= repaid
  const { amount } = granted
  // The whole amount was returned to other lots, so there is no new lot.
  if (amount === 0n) return
  setLot(state, {
    grantId,
    priority,
    expiresAtMs: expiresAt === null ? null : Date.parse(expiresAt),
    revision: event.revision,
    granted: amount,
    remaining: amount - repaid,
  })
}

/** Returns credits to lots. Returns the total. */
const fill = (
  state: AccountState,
  fills: Extract<ProjectedEvent, { type: 'CreditAdjusted' }>['data']['fills'],
): bigint => {
  let given = 0n
  for (const { grant_id, amount, priority, expires_at, revision, granted } of fills) {
    const part = microOf(amount)
    if (part < 0n) throw new Error(`${amount} credits are returned to lot ${grant_id}`)
    const lot = state.lots.get(grant_id) ?? {
      grantId: grant_id,
      priority,
      revision,
      granted: microOf(granted),
      remaining: 0n,
      expiresAtMs: expires_at === null ? null : Date.parse(expires_at),
    }
    setLot(state, { ...lot, remaining: lot.remaining + part })
    given += part
  }
  return given
}

/** Takes an amount from lots. The rest is overdrawn. */
const charge = (
  state: AccountState,
  amount: bigint,
  allocations: readonly { grant_id: string; amount: string }[],
): void => {
  const overdrawn = amount - take(state, allocations)
  if (overdrawn < 0n) throw new Error('more credits are taken from lots than are charged')
  state.overdrawn += overdrawn
}

/** Takes amounts from lots. Returns the total. */
const take = (state: AccountState, allocations: readonly { grant_id: string; amount: string }[]): bigint => {
  let taken = 0n
  for (const { grant_id, amount } of allocations) {
    const lot = state.lots.get(grant_id)
    const part = microOf(amount)
    if (lot === undefined || part < 0n || lot.remaining < part)
      throw new Error(`${amount} credits are taken from lot ${grant_id}, which contains fewer`)
    setLot(state, { ...lot, remaining: lot.remaining - part })
    taken += part
  }
  return taken
}

const setLot = (state: AccountState, lot: LotState): void => {
  if (lot.remaining === 0n) state.lots.delete(lot.grantId)
  else state.lots.set(lot.grantId, lot)
  state.changed.lots.set(lot.grantId, lot)
}
