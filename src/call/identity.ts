import type { PaidCall } from './form.ts'
import type { KeyedRequest } from './key-lookup.ts'

/** The source of a call's event ids. Two calls with the same identity are the same call. */
export type Identity =
  /** `repeats`: the request id of the earlier call whose stored answer was returned. */
  | { readonly kind: 'request'; readonly repeats?: string | undefined }
  /** The call has an Idempotency-Key, which only a charge uses up. The ledger contains no call under this key up to revision `absentUpTo`. */
  | { readonly kind: 'keyed'; readonly claim: KeyedRequest; readonly absentUpTo: number }
  /** The call under the key is charged, but its answer is not stored, so the call is made again for free. */
  | {
      readonly kind: 'charged'
      readonly claim: KeyedRequest
      readonly revision: number
      readonly paid: PaidCall
      /** The request id of the charged call. */
      readonly repeats: string | undefined
    }

export const byRequest: Identity = { kind: 'request' }
