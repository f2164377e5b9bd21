import type { MicroCredits } from '../billing/money.ts'
import type { PriceBook } from '../billing/price-book.ts'
import type { CallFacts, CallOutcome, CallsRefused, RateLimitExceeded } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { CreditAdjusted, LotFill, MonthClosed } from '../events/credits.ts'

/** A change that a ledger can be asked for. Plain data: a command can be queued and decided again. */

/** A call as its `KeyUsed` records it. */
export type CallToRecord = {
  readonly keyId: string
  readonly capability: Capability
  readonly outcome: CallOutcome
  readonly code?: string
  readonly facts: CallFacts
  /** The caller sent an Idempotency-Key. */
  readonly idempotent?: boolean
  /** With an Idempotency-Key that this call uses up: for which request. */
  readonly requestFingerprint?: string
}

/** How an account can pay for a call: it costs nothing, the balance pays it, or the balance does not. */
export type Affordability = 'free' | 'paid' | 'unpaid'

/** Each kind has its pure decision in `decide.ts`. Amounts are micro-credits. */
export type Instruction =
  | { readonly kind: 'register'; readonly name: string; readonly overdraftLimit: MicroCredits }
  /** Opens a lot whose id is the id of its event. */
  | {
      readonly kind: 'grant'
      readonly amount: MicroCredits
      readonly priority: number
      /** ISO 8601; null: never. */
      readonly expiresAt: string | null
      readonly reason: string
      /** What the operator calls it elsewhere. */
      readonly reference?: string
    }
  | {
      readonly kind: 'override_price'
      readonly sku: string
      readonly amount: MicroCredits | null
      readonly effectiveFrom: string
      readonly reason?: string
    }
  | {
      readonly kind: 'withdraw_override'
      readonly overrideId: string
      /** That of the event which set it. */
      readonly overrideRevision: number
      readonly sku: string
      readonly reason: string
    }
  | { readonly kind: 'set_threshold'; readonly amount: MicroCredits | null }
  | { readonly kind: 'close_month'; readonly closed: MonthClosed }
  /** Writes off the rest of an expired lot. */
  | { readonly kind: 'expire'; readonly grantId: string }
  /** Corrects a charge, or the balance where `adjusts` is null. Positive amounts are given back. */
  | {
      readonly kind: 'adjust'
      readonly adjusts: string | null
      readonly amount: MicroCredits
      readonly reason: string
      readonly rerateRun: string | null
      /** What the operator calls it elsewhere. */
      readonly reference?: string
      /** Of a refund: when the call was made. ISO 8601. */
      readonly chargedAt?: string
      /** Default: `adjustment`. */
      readonly correction?: Exclude<CreditAdjusted['kind'], 'void'>
      /** Lots that a positive amount goes back into, in this order, at most so much each; not into one that has expired. */
      readonly into?: readonly LotFill[]
      /** The amount was worked out from the ledger up to this revision: refused where another correction came after it. */
      readonly unlessAdjustedAfter?: number
      /** The same where a re-rate came after it. Any other correction of the charge has the same key, and is written instead. */
      readonly unlessReratedAfter?: number
      /** A negative amount takes at most what can be charged now. The organization keeps the rest. */
      readonly upToAvailable?: true
    }
  /** Takes back the rest of a lot. */
  | { readonly kind: 'void'; readonly grantId: string; readonly reason: string }
  /** Records a call and charges what its facts cost. `only`: nothing is written if the account decides otherwise. */
  | {
      readonly kind: 'record'
      readonly call: CallToRecord
      readonly book: PriceBook
      readonly only?: Affordability
    }
  /**
   * Records a refusal for lack of credits, unless the balance can pay `dearest` in addition to what calls in progress hold. Then nothing is
   * written.
   */
  | {
      readonly kind: 'refuse'
      readonly call: CallToRecord
      readonly book: PriceBook
      readonly dearest: CallFacts
      readonly held: MicroCredits
    }
  | { readonly kind: 'count_rate_limited'; readonly exceeded: RateLimitExceeded }
  | {
      readonly kind: 'count_refused'
      readonly refused: Omit<CallsRefused, 'free_by'>
      readonly book: PriceBook
    }

/** The actor, the time, and the key that distinguishes the command from every other. */
export type Envelope = {
  /** Idempotency-Key or request id: with the organization it determines every event id. */
  readonly key: string
  readonly atMs: number
  readonly actor: string
  readonly requestId?: string
  /** The request id of the call whose answer this call gets again. */
  readonly repeats?: string
  /** The trace that the partner's request names: 32 hexadecimal digits. */
  readonly traceId?: string
  /**
   * The ledger is known not to hold the command up to this revision: given for keys that may come back. Later
   * revisions are searched before the command is decided.
   */
  readonly absentUpTo?: number
  /** How long its caller waits, where that is less than the ledger's own limit. */
  readonly waitMaxMs?: number
}

export type LedgerCommand = Envelope & Instruction

/**
 * The durable result of a command. `repeated`: the ledger already held its events, perhaps because another process wrote
 * the same command. `requestId` is the request that its events name.
 */
export type Committed = {
  readonly events: readonly LedgerEvent[]
  readonly revision: number
  readonly balance: MicroCredits
  readonly repeated: boolean
  readonly requestId?: string | undefined
}

/** The ledger's rules forbid the command; nothing was written. */
export class CommandRefused extends Error {
  override name = 'CommandRefused'
}

/**
 * The key of the command that first gives a call's charge back, by the first event id of the call: an operator's refund, or a reversal. Each says
 * up to where the ledger holds none of them, so one of them is written and the others are answered by it.
 */
export const refundKeyOf = (firstEventId: string): string => `refunded/${firstEventId}`

/** How a refusal begins that means: read the ledger again, because it was corrected since. */
export const adjustedMeanwhile = 'the ledger was corrected meanwhile'

/** How a refusal begins that means: more came since what a closing counted than may lie between. */
export const movedOn = 'the ledger has moved on'
