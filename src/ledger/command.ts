import type { MicroCredits } from '../billing/money.ts'
import type { PriceBook } from '../billing/price-book.ts'
import type { CallFacts, CallOutcome, CallsRefused, RateLimitExceeded } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { LedgerEvent } from '../events/catalogue.ts'
import type { CreditAdjusted, LotFill, MonthClosed } from '../events/credits.ts'

/** A command to change a ledger. It is plain data, so that it can be queued and decided again. */

/** The data of a call's `KeyUsed` event. */
export type CallToRecord = {
  readonly keyId: string
  readonly capability: Capability
  readonly outcome: CallOutcome
  readonly code?: string
  readonly facts: CallFacts
  /** Set if the caller sent an Idempotency-Key. */
  readonly idempotent?: boolean
  /** Identifies the request. A later call with the same Idempotency-Key must have the same fingerprint. */
  readonly requestFingerprint?: string
}

/** `paid`: the balance covers the call. `unpaid`: the balance does not cover it. */
export type Affordability = 'free' | 'paid' | 'unpaid'

/** Amounts are in micro-credits. `decide.ts` contains a pure decision for each kind. */
export type Instruction =
  | { readonly kind: 'register'; readonly name: string; readonly overdraftLimit: MicroCredits }
  /** Opens a lot, whose id is the id of the event. */
  | {
      readonly kind: 'grant'
      readonly amount: MicroCredits
      readonly priority: number
      /** In ISO 8601. Null: the lot never expires. */
      readonly expiresAt: string | null
      readonly reason: string
      /** The reference that the operator chose. */
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
      /** The revision of the event that set the override. */
      readonly overrideRevision: number
      readonly sku: string
      readonly reason: string
    }
  | { readonly kind: 'set_threshold'; readonly amount: MicroCredits | null }
  | { readonly kind: 'close_month'; readonly closed: MonthClosed }
  /** Writes off the rest of an expired lot. */
  | { readonly kind: 'expire'; readonly grantId: string }
  /** Corrects a charge or, if `adjusts` is null, the balance. A positive amount is in favour of the organization. */
  | {
      readonly kind: 'adjust'
      readonly adjusts: string | null
      readonly amount: MicroCredits
      readonly reason: string
      readonly rerateRun: string | null
      /** The reference that the operator chose. */
      readonly reference?: string
      /** For a refund or a reversal: the time of the call, in ISO 8601. */
      readonly chargedAt?: string
      /** Default: `adjustment`. */
      readonly correction?: Exclude<CreditAdjusted['kind'], 'void'>
      /** The lots to which a positive amount returns, in this order and up to these amounts. Expired lots are skipped. */
      readonly into?: readonly LotFill[]
      /** The revision up to which the ledger was read to calculate the amount. If there is a later correction, the command is refused. */
      readonly unlessAdjustedAfter?: number
      /**
       * Like `unlessAdjustedAfter`, but only for re-rates. Other corrections need no check: they have the same key as this command, so
       * only one of them can be written.
       */
      readonly unlessReratedAfter?: number
      /** A negative amount is reduced to what can be charged now. */
      readonly upToAvailable?: true
    }
  /** Takes back the rest of a lot. */
  | { readonly kind: 'void'; readonly grantId: string; readonly reason: string }
  /** Records a call and charges for its facts. With `only`, nothing is written unless the call's affordability is `only`. */
  | {
      readonly kind: 'record'
      readonly call: CallToRecord
      readonly book: PriceBook
      readonly only?: Affordability
    }
  /**
   * Records that a call was refused for lack of credits. Nothing is written if the balance covers `dearest` and the reservations of
   * calls in progress.
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

/** The data that every command has. */
export type Envelope = {
  /** The Idempotency-Key or request id. Event ids are derived from it and the organization. */
  readonly key: string
  readonly atMs: number
  readonly actor: string
  readonly requestId?: string
  /** The request id of the earlier call whose answer this call repeats. */
  readonly repeats?: string
  /** The trace id from the partner's request, 32 hexadecimal digits. */
  readonly traceId?: string
  /**
   * The revision up to which the caller has searched the ledger for the command without finding it. Set for keys that can be used again.
   * Later revisions are searched before the command is decided.
   */
  readonly absentUpTo?: number
  /** The maximum time that the caller waits. The ledger's own limit also applies. */
  readonly waitMaxMs?: number
}

export type LedgerCommand = Envelope & Instruction

/**
 * The durable result of a command. `repeated`: the ledger already contained the command's events. `requestId` is the request id in
 * these events.
 */
export type Committed = {
  readonly events: readonly LedgerEvent[]
  readonly revision: number
  readonly balance: MicroCredits
  readonly repeated: boolean
  readonly requestId?: string | undefined
}

/** The ledger's rules do not allow the command. Nothing was written. */
export class CommandRefused extends Error {
  override name = 'CommandRefused'
}

/** The command was decided from an older state of the ledger. The caller must read the ledger again, and can then repeat the command. */
export class LedgerChanged extends CommandRefused {}

/** The ledger cannot accept the command now. The command was not written and never will be, so the caller can try again. */
export class LedgerUnavailable extends Error {
  override name = 'LedgerUnavailable'
}

/** The command may have been written, or may still be written. The caller can find out by repeating it with the same key. */
export class LedgerOutcomeUnknown extends Error {
  override name = 'LedgerOutcomeUnknown'
}

/**
 * The command key of the first refund and of the reversal of a call's charge, derived from the call's first event id. Because both have
 * the same key, only one of them can be written.
 */
export const refundKeyOf = (firstEventId: string): string => `refunded/${firstEventId}`
