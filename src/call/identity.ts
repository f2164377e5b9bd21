import type { PaidCall } from './form.ts'
import type { KeyedRequest } from './key-lookup.ts'

/** The source of a call's event ids. A repeated call with the same identity is the same call. */
export type Identity =
  /** `repeats`: it got the kept answer of an earlier call, by that one's request id. */
  | { readonly kind: 'request'; readonly repeats?: string | undefined }
  /** An Idempotency-Key, used up by a charge. The ledger does not hold a call under it up to `absentUpTo`. */
  | { readonly kind: 'keyed'; readonly claim: KeyedRequest; readonly absentUpTo: number }
  /** The call under the key is charged, and its answer is not kept: it is made again, free. */
  | {
      readonly kind: 'charged'
      readonly claim: KeyedRequest
      /** Where the ledger holds the charged call. */
      readonly revision: number
      readonly paid: PaidCall
      /** Its request id. */
      readonly repeats: string | undefined
    }

export const byRequest: Identity = { kind: 'request' }
