/**
 * The port for profile providers, and the types they share. A provider's failure is a finding, never an
 * exception: the caller's answer depends on the kind of failure.
 */

/** The person asked for, in canonical form (see `identifier.ts`). `urn` holds only the numeric id, as text: it exceeds 2^53. */
export type ProfileRef = { readonly kind: 'lid' | 'urn'; readonly value: string }

/** Of every list in a profile, and of every text in UTF-8 bytes; longer ones are cut when data is mapped. */
export const itemsMax = 200
export const textBytesMax = 10_000

type ProfileDate = string

export type ProfileAddress = {
  readonly street: string | null
  readonly city: string | null
  readonly state: string | null
  readonly postal_code: string | null
  readonly country: string | null
  readonly country_code: string | null
}

/** One person's data in the members of Spec §2.4, without `url` and `deleted`, which the answer adds. */
export type ProfileData = {
  readonly firstname: string | null
  readonly lastname: string | null
  readonly numOfConnections: number | null
  readonly headline: string | null
  readonly about: string | null
  readonly skills: readonly string[]
  readonly languages: readonly { readonly value: string; readonly norm: string | null }[]
  readonly address: ProfileAddress | null
  readonly educations: readonly {
    readonly urn: string | null
    readonly name: string | null
    readonly degree: string | null
    readonly startDate: ProfileDate | null
    readonly endDate: ProfileDate | null
  }[]
  readonly employment_history: readonly {
    readonly title: string | null
    readonly description: string | null
    readonly startDate: ProfileDate | null
    readonly endDate: ProfileDate | null
    readonly location: string | null
    readonly is_current: boolean
    readonly company: {
      readonly lid: string | null
      readonly company_name: string | null
      readonly urn: string | null
    } | null
  }[]
  readonly emails: readonly { readonly value: string; readonly sub_type: string | null }[]
  readonly phone_numbers: readonly { readonly value: string; readonly sub_type: string | null }[]
}

/** The identifiers an answer claims to belong to. `urn` is the numeric id as text. */
export type ProfileIds = { readonly lid: string; readonly urn: string | null }

export type ProviderAnswer =
  | {
      readonly kind: 'found'
      readonly ids: ProfileIds
      readonly data: ProfileData
      /** When the source itself saw this data; its own cache counts. */
      readonly observedAtMs: number
      /** The source said that the identifier asked for now leads to these ids: a rename, not a mix-up. */
      readonly redirected: boolean
    }
  /** Known to the source as deleted or closed. */
  | { readonly kind: 'gone' }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'inaccessible' }
  /** The source cannot be asked by such an identifier: nothing was learned. */
  | { readonly kind: 'unsupported' }
  | { readonly kind: 'rate_limited'; readonly retryAfterSeconds: number | null }
  /** Unreachable, late, 5xx: asking again may help. `detail` is for the logger and contains nothing personal. */
  | {
      readonly kind: 'transient'
      readonly detail: string
      /** If the source named a time to come back at. It is meant for the caller, because it may be about this person alone. */
      readonly retryAfterSeconds?: number
    }
  | { readonly kind: 'malformed'; readonly detail: string }

export type AskOptions = {
  /** On the `performance.now()` clock. */
  readonly deadlineMs: number
  /** Older data does not serve the caller: `cached: false` asks for at most a minute. Null: any age. */
  readonly ageMaxMs: number | null
}

export type ProfileProvider = {
  /** The name in events and metrics: `dataset`, `http`. */
  readonly name: string
  /** Settles by the deadline, regardless of the source. Never rejects. */
  readonly fetch: (ref: ProfileRef, options: AskOptions) => Promise<ProviderAnswer>
}

/** A source before it is guarded: it may be late, and it may reject. */
export type ProfileSource = {
  readonly name: string
  /** False: this source cannot be asked by such an identifier. */
  readonly supports?: (ref: ProfileRef) => boolean
  /** `signal`: no one waits for the answer any longer. */
  readonly fetch: (
    ref: ProfileRef,
    options: AskOptions & { readonly signal: AbortSignal },
  ) => Promise<ProviderAnswer>
}
