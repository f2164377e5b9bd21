import type { z } from 'zod'
import type { ErrorCode } from './errors.ts'

/** What partners read about one kind of call: the OpenAPI document is made of it (`openapi.ts`), and its schemas are checked against real answers. */
export type CallDocument = {
  /** Unique among all calls: clients that are generated name a function by it. */
  readonly operationId: string
  readonly summary: string
  /** Markdown. */
  readonly description: string
  /** The body of a POST or DELETE; the parameters of a GET, in its query unless the path names them. Null: none. */
  readonly request: z.ZodObject | null
  readonly result: z.ZodType
  /** Members of the envelope beside the result, where they are. */
  readonly beside?: z.ZodObject
  /** The answer 202: that there will be a result. */
  readonly accepted?: z.ZodType
  /** Where the answer is no JSON document: its type. `result` is then what each line holds. */
  readonly streams?: string
  /** Its own refusals, beside those that every call of its kind has. */
  readonly codes: readonly ErrorCode[]
}
