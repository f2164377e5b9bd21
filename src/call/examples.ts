import recorded from './examples.json' with { type: 'json' }

/**
 * Answers that were really given, for the OpenAPI document. `npm run examples` makes the calls and writes them again; a test makes
 * them too and finds every difference. The answers of a capability's own calls are in its folder.
 */

/** By operation, status and name. */
export type RecordedAnswers = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, Example>>>>>
>

export type Example = { readonly request: unknown; readonly answer: unknown }

/** What the calls of all capabilities share. */
export type Examples = {
  /** By code; of a code with another status than the catalogue's, by both. */
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
