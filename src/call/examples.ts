import recorded from './examples.json' with { type: 'json' }

/**
 * Real answers for the OpenAPI document. `npm run examples` makes the calls and writes the answers. A test makes the same calls and
 * reports every difference. The answers of each capability are in its folder.
 */

/** The keys are the operation, the status and the name of the example. */
export type RecordedAnswers = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, Example>>>>>
>

export type Example = { readonly request: unknown; readonly answer: unknown }

/** Errors and headers that the calls of all capabilities share. */
export type Examples = {
  /** The key is the code, or code and status if the status differs from the catalogue. */
  readonly errors: Readonly<Record<string, unknown>>
  /** The keys are the headers' names in the components of the OpenAPI document. */
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
