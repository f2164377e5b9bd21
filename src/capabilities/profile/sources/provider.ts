import type { ProfileResult } from '../contract.ts'

/**
 * The port for profile providers and its types. The failure of a provider is an answer and not an exception, because the caller's answer
 * depends on the kind of failure.
 */

/** The requested person, in canonical form (see `identifier.ts`). `urn` is only the numeric id, as text because it can exceed 2^53. */
export type ProfileRef = { readonly kind: 'lid' | 'urn'; readonly value: string }

/** Limits for every list and every string (in UTF-8 bytes) in a profile; longer lists and strings are cut when data is mapped. */
export const itemsMax = 200
export const textBytesMax = 10_000

/** One person's data, without the members that are added to the answer. */
export type ProfileData = Omit<ProfileResult, 'url' | 'lid' | 'deleted'>

/** `urn` is the numeric id as text. */
export type ProfileIds = { readonly lid: string; readonly urn: string | null }

export type ProviderAnswer =
  | {
      readonly kind: 'found'
      readonly ids: ProfileIds
      readonly data: ProfileData
      /** The time when the source saw this data. For an answer from the source's own cache, this is the time of the cached data. */
      readonly observedAtMs: number
      /**
       * True if the source reported that the requested identifier now leads to these ids. The person was then renamed, and the source did not
       * confuse people.
       */
      readonly redirected: boolean
    }
  /** The source reports the person as deleted or closed. */
  | { readonly kind: 'gone' }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'inaccessible' }
  /** The source cannot be asked by this kind of identifier. */
  | { readonly kind: 'unsupported' }
  | { readonly kind: 'rate_limited'; readonly retryAfterSeconds: number | null }
  /** The source was unreachable or late, or sent a 5xx. `detail` is for the logger and contains no personal data. */
  | {
      readonly kind: 'transient'
      readonly detail: string
      /** The time after which the source allows another attempt. It is passed to the caller, because it may apply only to this person. */
      readonly retryAfterSeconds?: number
    }
  | { readonly kind: 'malformed'; readonly detail: string }

export type AskOptions = {
  /** On the clock of `performance.now()`. */
  readonly deadlineMs: number
  /** The maximum age of data that the caller accepts: a minute for `cached: false`, and any age if null. */
  readonly ageMaxMs: number | null
}

export type ProfileProvider = {
  /** The name in events and metrics: `dataset`, `http`. */
  readonly name: string
  /** Settles by the deadline, even if the source does not answer. Never rejects. */
  readonly fetch: (ref: ProfileRef, options: AskOptions) => Promise<ProviderAnswer>
}

/** A source without the guard of `guardSource`. Its `fetch` may be late or reject. */
export type ProfileSource = {
  readonly name: string
  /** False if the source cannot be asked by this kind of identifier. */
  readonly supports?: (ref: ProfileRef) => boolean
  /** `signal` is aborted when the answer is no longer needed. */
  readonly fetch: (
    ref: ProfileRef,
    options: AskOptions & { readonly signal: AbortSignal },
  ) => Promise<ProviderAnswer>
}
