import type { MicroCredits } from '../billing/money.ts'
import type { Refusal } from './errors.ts'
import type { StreamedBody } from './form.ts'

export type Credits = { readonly charged: MicroCredits; readonly remaining: MicroCredits }

/** How a call ends. The headers show the credits, as far as they are known. */
export type CallResult =
  | {
      readonly kind: 'answered'
      readonly body: string | StreamedBody
      readonly credits: Credits
      /** Where the ledger holds the call, if it was charged. */
      readonly paidRevision: number | null
      /** The answer only announces a later result. */
      readonly retryAfterSeconds?: number | undefined
    }
  /** The answer of an earlier call with the same Idempotency-Key: the kept one, or made again without a charge. */
  | {
      readonly kind: 'replayed'
      readonly status: number
      readonly body: string
      readonly credits: Credits
    }
  | { readonly kind: 'refused' | 'failed'; readonly refusal: Refusal; readonly credits?: Credits }
