import type { FastifyRequest } from 'fastify'
import type { DirectoryKey } from '../guard/key-directory.ts'
import type { RateVerdict } from '../guard/rate-limit.ts'
import type { Credits } from './answer.ts'
import type { PaidPlace } from './attempts.ts'
import type { Refusal } from './errors.ts'
import type { AnyCapabilityForm, PaidCall } from './form.ts'
import type { IdempotencyClaim } from './idempotency.ts'

/** What a call is while it is answered, and what it comes to. */

/** A request that is being answered. `startedMs` is of `performance.now()`, `atMs` the time of day. */
export type Call = {
  readonly form: AnyCapabilityForm
  readonly request: FastifyRequest
  readonly requestId: string
  readonly atMs: number
  readonly startedMs: number
}

/** A call whose key is known, permitted and within its rate limits. */
export type AdmittedCall = Call & { readonly key: DirectoryKey; readonly verdict: RateVerdict }

/** What a call's events derive their ids from, and so what makes it the same call when it comes again. */
export type Identity =
  | { readonly kind: 'request' }
  /** An Idempotency-Key, used up by a charge. The ledger does not hold this attempt up to `absentUpTo`. */
  | {
      readonly kind: 'keyed'
      readonly claim: IdempotencyClaim
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
  readonly claim: IdempotencyClaim
  /** The first event of the charged call, and where the ledger holds it. */
  readonly eventId: string
  readonly place: PaidPlace
  readonly paid: PaidCall
}

export const byRequest: Identity = { kind: 'request' }

/** How a call ends. What is known of the credits by then is told in the headers. */
export type CallResult =
  | {
      readonly kind: 'answered'
      readonly body: string
      readonly credits: Credits
      /** Where the ledger holds the call, if it was charged. */
      readonly paidRevision: number | null
    }
  /** The answer of an earlier call with the same Idempotency-Key: the kept one, or made again without a charge. */
  | {
      readonly kind: 'replayed'
      readonly status: number
      readonly body: string
      readonly credits: Credits
    }
  | { readonly kind: 'refused' | 'failed'; readonly refusal: Refusal; readonly credits?: Credits }
