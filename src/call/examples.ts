import recorded from './examples.json' with { type: 'json' }

/**
 * Answers that were really given, for the OpenAPI document. `npm run examples` makes the calls and writes them again; a test makes
 * them too and finds every difference.
 */
export type Examples = {
  /** By operation, status and name. */
  readonly answers: Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, Example>>>>>>
  /** By code; of a code with another status than the catalogue's, by both. */
  readonly errors: Readonly<Record<string, unknown>>
  /** By name, as in the components of the document. */
  readonly headers: Readonly<Record<HeaderName, string>>
}

export type Example = { readonly request: unknown; readonly answer: unknown }

export type HeaderName =
  | 'RequestId'
  | 'CreditsCharged'
  | 'CreditsRemaining'
  | 'RateLimitPolicy'
  | 'RateLimit'
  | 'RetryAfter'
  | 'IdempotentReplayed'

export const examples: Examples = recorded
