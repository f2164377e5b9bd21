import type { MicroCredits } from '../billing/money.ts'
import type { Refusal } from './errors.ts'
import type { StreamedBody } from './form.ts'

export type Credits = { readonly charged: MicroCredits; readonly remaining: MicroCredits }

/** The result of a call. `credits` is missing if the balance is not known. */
export type CallResult =
  | {
      readonly kind: 'answered'
      readonly body: string | StreamedBody
      readonly credits: Credits
      /** The ledger revision of the call, if it was charged. */
      readonly paidRevision: number | null
      /** The answer only announces a later result. */
      readonly retryAfterSeconds?: number | undefined
    }
  /** The answer to an earlier call with the same Idempotency-Key, either stored or made again for free. */
  | {
      readonly kind: 'replayed'
      readonly status: number
      readonly body: string
      readonly credits: Credits
    }
  | { readonly kind: 'refused' | 'failed'; readonly refusal: Refusal; readonly credits?: Credits }

/** The result of a call that costs nothing. `remaining` is undefined if the balance is not known. */
export const uncharged = (
  kind: 'refused' | 'failed',
  refusal: Refusal,
  remaining: MicroCredits | undefined,
): CallResult => ({
  kind,
  refusal,
  ...(remaining !== undefined && { credits: { charged: 0n, remaining } }),
})
