import recorded from './examples.json' with { type: 'json' }

/**
 * Real answers, for the OpenAPI document. `npm run examples` makes the calls and writes the answers; a test makes
 * the same calls and finds every difference. The answers of a capability's own calls are in its folder.
 */

/** By operation, status and name. */
export type RecordedAnswers = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, Example>>>>>
>

export type Example = { readonly request: unknown; readonly answer: unknown }

/** Shared by the calls of all capabilities. */
export type Examples = {
  /** By code; if the status differs from the catalogue's, by code and status. */
  readonly errors: Readonly<Record<string, unknown>>
  /** By name, as in the components of the document. */
  readonly headers: Readonly<Record<HeaderName, string>>
}

export type HeaderName =
  | 'RequestId'
  | 'CreditsCharged'
  | 'CreditsRemaining'
  | 'RateLimitPolicy'
  | 'RateLimit'
  | 'RetryAfter'
  | 'IdempotentReplayed'

export const examples: Examples = recorded
