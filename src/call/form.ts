import type { z } from 'zod'
import type { CallFacts } from '../events/calls.ts'
import type { Capability, Permission } from '../events/capabilities.ts'
import type { KeyLimits } from '../events/keys.ts'
import type { KeyState } from '../keys/key-state.ts'
import type { ErrorCode, Refusal } from './errors.ts'
import type { RecordedAnswers } from './examples.ts'
import type { CallResult } from './result.ts'

export type JsonObject = Readonly<Record<string, unknown>>

/** A kind of call: its route and its documentation. */
export type DescribedCall = {
  readonly capability: Capability
  /** Null if every valid key can make the call. */
  readonly permission: Permission | null
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  readonly document: CallDocument
  /** `enveloped` (default): `{result, processing_time_ms, request_id}`. `flat`: the result is the whole body. */
  readonly body?: 'enveloped' | 'flat'
}

/**
 * The part of a call that a capability writes. `sequence.ts` does the rest for every call, so no capability can omit
 * authentication, limits, records or charges.
 */
export type CapabilityForm<Input, Findings, Result extends object> = DescribedCall & {
  /** Parses the body; for a GET, the query and path parameters as strings. Ignores unknown members (decision 7). */
  readonly parse: (body: JsonObject) => { readonly input: Input } | { readonly refusal: Refusal }
  /** The key's limit for calls of this capability per second, counted in a separate window. */
  readonly perSecond?: (limits: KeyLimits) => number
  /**
   * Set if the answer contains personal data and is therefore never stored for replays. If the call is repeated, it is processed again, free of
   * charge.
   */
  readonly personal?: true
  /** Does all I/O of the call. Failures outside the service should be returned as findings; an exception becomes SYS_001. */
  readonly gather: (input: Input, caller: Caller) => Findings | Promise<Findings | Unaffordable>
  /** The source of findings for a call with a test key. */
  readonly rehearse: Rehearsal<Input, Findings>
  /** Pure: derives the answer and the facts from the same findings, so that they cannot disagree. */
  readonly decide: (findings: Findings, input: Input) => CallDecision<Result>
  /** Adds the lines of the charge to a result that shows them. Amounts are canonical decimal strings (decision 8). */
  readonly billed?: (
    result: Result,
    lines: readonly { readonly sku: string; readonly amount: string }[],
  ) => Result
  /** Streams an answer that is too long for memory instead of the result, once the call is recorded. */
  readonly stream?: (result: Result) => StreamedBody
}

/**
 * `own`: test keys use `gather` itself, because it uses only data of the key's organization, which is the test organization.
 * Otherwise, a replacement of `gather`, which contacts no outside service and reads no real data.
 */
export type Rehearsal<Input, Findings> =
  | 'own'
  | {
      /** The word in the input that selects the answer; null if there is no such word. An error code in lower case selects that error. */
      readonly asked: (input: Input) => string | null
      readonly gather: (
        input: Input,
        rehearsed: { readonly word: string | null; readonly atMs: number },
      ) => Findings | Promise<Findings>
    }

/** An answer that is produced while it is sent. If a part cannot be produced, the connection is closed early. */
export type StreamedBody = {
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  readonly chunks: () => AsyncIterable<string>
}

export type PaidCall = { readonly facts: CallFacts; readonly atMs: number }

export type Caller = {
  readonly key: KeyState
  readonly atMs: number
  readonly requestId: string
  /** Set if the call was charged before and its answer is no longer stored. `gather` should use existing data if possible. */
  readonly repeated: PaidCall | null
  /**
   * Called by `gather` before work that costs money upstream, and before work whose result a later refusal would reveal. Returns
   * null if the balance can pay the call's highest possible cost. Otherwise the call is refused and recorded, and `gather` must
   * return the value. A second `reserve` replaces the earlier amount.
   */
  readonly reserve: (dearest: CallFacts) => Promise<Unaffordable | null>
}

/** `gather` returns this instead of findings if the balance cannot pay for the call. */
export type Unaffordable = { readonly unaffordable: CallResult }

export type Decided<Result = object> = {
  readonly result: Result
  readonly facts: CallFacts
  /** Members of the envelope next to the result. */
  readonly beside?: Readonly<Record<string, boolean | number>>
  /** Set if the answer only announces a later result, with status 202 and Retry-After. */
  readonly retryAfterSeconds?: number
}

export type CallDecision<Result> = Decided<Result> | { readonly refusal: Refusal }

// biome-ignore lint/suspicious/noExplicitAny: the pipeline passes the result of `parse` to `gather`, and so on, without reading it.
export type AnyCapabilityForm = CapabilityForm<any, any, any>

/** A capability's documentation, from its `document.ts`. Loading the documentation opens no connection and no file. */
export type CapabilityDocument = {
  /** The OpenAPI document lists the calls under this tag, with `about` as its description. */
  readonly tag: string
  readonly about: string
  readonly calls: readonly DescribedCall[]
  readonly examples: RecordedAnswers
  /** A call with which partners can try a new key. If a key permits several, the call of the first capability in the list is shown. */
  readonly firstCall?: FirstCall
}

/** `body` is null for a GET. */
type FirstCall = { readonly call: DescribedCall; readonly body: JsonObject | null }

/** The partners' documentation for one kind of call. `openapi.ts` uses it, and tests compare its schemas with real answers. */
export type CallDocument = {
  /** Unique among all calls: generated clients use it as a function name. */
  readonly operationId: string
  readonly summary: string
  /** Markdown. */
  readonly description: string
  /** The body of a POST or DELETE, or the path and query parameters of a GET; null if there are none. */
  readonly request: z.ZodObject | null
  readonly result: z.ZodType
  readonly beside?: z.ZodObject
  /** The result of a 202 answer, which announces a later result. */
  readonly accepted?: z.ZodType
  /** The media type of the answer, if it is not one JSON document. `result` then describes one line. */
  readonly streams?: string
  /** The call's own refusals, in addition to the common ones. */
  readonly codes: readonly ErrorCode[]
}
