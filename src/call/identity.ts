import type { KeyedRequest, PaidPlace } from './attempts.ts'
import type { PaidCall } from './form.ts'

/** What a call's events derive their ids from, and so what makes it the same call when it comes again. */
export type Identity =
  /** `repeats`: it got the kept answer of an earlier call, by that one's request id. */
  | { readonly kind: 'request'; readonly repeats?: string | undefined }
  /** An Idempotency-Key, used up by a charge. The ledger does not hold this attempt up to `absentUpTo`. */
  | {
      readonly kind: 'keyed'
      readonly claim: KeyedRequest
      readonly attempt: number
      readonly absentUpTo: number
    }
  /**
   * The call under the key was charged and may not have been answered: this answer settles the charge, unless the process that
   * refused it gave the charge back. The ledger holds neither up to `absentUpTo`.
   */
  | ({ readonly kind: 'settles'; readonly absentUpTo: number } & ChargedBefore)
  /** The call under the key was charged and answered, and the answer is not kept: it is made again. */
  | ({ readonly kind: 'redelivers' } & ChargedBefore)

type ChargedBefore = {
  readonly claim: KeyedRequest
  /** The first event of the charged call, and where the ledger holds it. */
  readonly eventId: string
  readonly place: PaidPlace
  readonly paid: PaidCall
  /** Its request id. */
  readonly repeats: string | undefined
}

export const byRequest: Identity = { kind: 'request' }
