import type { z } from 'zod'
import type { CallFacts } from '../events/calls.ts'
import type { Capability, Permission } from '../events/capabilities.ts'
import type { KeyLimits } from '../events/keys.ts'
import type { KeyState } from '../keys/key-state.ts'
import type { ErrorCode, Refusal } from './errors.ts'
import type { RecordedAnswers } from './examples.ts'
import type { CallResult } from './result.ts'

/** A request body: any JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>

/** A kind of call: how it is made, and its documentation for partners. */
export type DescribedCall = {
  readonly capability: Capability
  /** Null: every valid key may call it. */
  readonly permission: Permission | null
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  readonly document: CallDocument
  /** `enveloped` (default): `{result, processing_time_ms, request_id}`. `flat`: the result is the whole body. */
  readonly body?: 'enveloped' | 'flat'
}

/**
 * The form a capability fills in. The sequence of a call is written once, in `sequence.ts`; a capability cannot forget
 * to authenticate, to limit, to record or to charge, because it never does any of these.
 */
export type CapabilityForm<Input, Findings, Result extends object> = DescribedCall & {
  /** Checks the request body; for a GET, the parameters of query and path as texts. Unknown members are ignored (decision 7). */
  readonly parse: (body: JsonObject) => { readonly input: Input } | { readonly refusal: Refusal }
  /** The key's limit of such calls per second, in a separate window. */
  readonly perSecond?: (limits: KeyLimits) => number
  /** The answer holds a person's data, so it is never kept for replays; the call is made again instead, for free. */
  readonly personal?: true
  /** All I/O of the call. A failure outside is a finding where possible; an exception becomes SYS_001. */
  readonly gather: (input: Input, caller: Caller) => Findings | Promise<Findings | Unaffordable>
  /** How the call of a test key gets its findings. */
  readonly rehearse: Rehearsal<Input, Findings>
  /** Pure: answer and facts from the same findings, so that they cannot disagree. */
  readonly decide: (findings: Findings, input: Input) => CallDecision<Result>
  /** The result with its charge, line by line, for results that show it. Canonical decimal strings (decision 8). */
  readonly billed?: (
    result: Result,
    lines: readonly { readonly sku: string; readonly amount: string }[],
  ) => Result
  /** The JSON text of the result, if there is a cheaper way than JSON.stringify. */
  readonly renderResult?: (result: Result) => string
  /** For an answer too long to hold in memory: it is sent piece by piece in place of the result, once the call is recorded. */
  readonly stream?: (result: Result) => StreamedBody
}

/**
 * `own`: `gather` itself, because it reads and changes only data of the key's organization, which is the test organization for a
 * test key. Otherwise the replacement for `gather`: it asks nothing outside and reads no one's data.
 */
export type Rehearsal<Input, Findings> =
  | 'own'
  | {
      /** The word in the input that chooses the answer; null: none. An error code in lower case is that error. */
      readonly asked: (input: Input) => string | null
      readonly gather: (
        input: Input,
        rehearsed: { readonly word: string | null; readonly atMs: number },
      ) => Findings | Promise<Findings>
    }

/** An answer that is made while it is sent. If a piece cannot be made, the connection is cut. */
export type StreamedBody = {
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  readonly chunks: () => AsyncIterable<string>
}

/** A call that was charged: its facts, and its time. */
export type PaidCall = { readonly facts: CallFacts; readonly atMs: number }

/** The caller, and the time of the call. */
export type Caller = {
  readonly key: KeyState
  readonly atMs: number
  readonly requestId: string
  /** A call that was charged before and whose answer is no longer kept. Answer it from existing data, if possible. */
  readonly repeated: PaidCall | null
  /**
   * For `gather`, before work that costs money upstream or whose result a refusal would reveal: null when the balance can
   * pay for the call's highest possible cost. Otherwise the call ends here, refused and recorded, and
   * `gather` returns what it was given. Asked again, the later amount takes the place of the earlier one.
   */
  readonly reserve: (dearest: CallFacts) => Promise<Unaffordable | null>
}

/** The balance cannot pay for the call. What `gather` returns in place of findings. */
export type Unaffordable = { readonly unaffordable: CallResult }

/** An answer and the facts it is based on. */
export type Decided<Result = object> = {
  readonly result: Result
  readonly facts: CallFacts
  /** Members of the envelope next to the result. */
  readonly beside?: Readonly<Record<string, boolean | number>>
  /** The answer announces a later result: status 202, with Retry-After. */
  readonly retryAfterSeconds?: number
}

export type CallDecision<Result> = Decided<Result> | { readonly refusal: Refusal }

/** A form of any types: only the form itself knows them. */
// biome-ignore lint/suspicious/noExplicitAny: the pipeline passes the result of `parse` to `gather`, and so on, without looking into it.
export type AnyCapabilityForm = CapabilityForm<any, any, any>

/** The documentation of a capability, in its `document.ts`. It does not depend on anything that a process has opened. */
export type CapabilityDocument = {
  /** The OpenAPI document lists its calls under this word, with a sentence about it. */
  readonly tag: string
  readonly about: string
  /** The kinds of its calls. */
  readonly calls: readonly DescribedCall[]
  readonly examples: RecordedAnswers
  /** A call for trying a new key. If a key may make several of them, the call of the first capability in the list is shown. */
  readonly firstCall?: FirstCall
}

/** `body` is null for a GET. */
type FirstCall = { readonly call: DescribedCall; readonly body: JsonObject | null }

/** The partners' documentation of one kind of call: `openapi.ts` makes the OpenAPI document from it, and its schemas are checked against real answers. */
export type CallDocument = {
  /** Unique among all calls: generated clients use it as a function name. */
  readonly operationId: string
  readonly summary: string
  /** Markdown. */
  readonly description: string
  /** The body of a POST or DELETE; the parameters of a GET, in its query unless the path names them. Null: none. */
  readonly request: z.ZodObject | null
  readonly result: z.ZodType
  /** Members of the envelope next to the result, if any. */
  readonly beside?: z.ZodObject
  /** The answer 202, which announces a later result. */
  readonly accepted?: z.ZodType
  /** The type of the answer, if it is not a JSON document. `result` then describes one line. */
  readonly streams?: string
  /** Its own refusals, in addition to the common ones. */
  readonly codes: readonly ErrorCode[]
}
