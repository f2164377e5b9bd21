/** The pixel as administration uses it. The capability implements it, because administration must not import the capability. */

export type PixelChange = 'limit' | 'unlimit' | 'block' | 'unblock'

type Text = (name: string) => string

type Rule = {
  readonly domain: string
  /** Null for a block, like the next three members. */
  readonly period: string | null
  readonly number: number | null
  /** Null for a block, and if the counters did not answer. */
  readonly used: number | null
  readonly resetsAt: Date | null
  readonly actor: string
  /** Empty if the time is unknown. */
  readonly at: string
  /** The position after which the next page starts. */
  readonly place: string
}

export type PixelRules = {
  /** At most `max` rules after a position, for domains whose name contains `search`. */
  rules(
    organizationId: string,
    asked: { readonly search: string; readonly after: string; readonly max: number; readonly atMs: number },
  ): Promise<{
    readonly rules: readonly Rule[]
    readonly count: number
    readonly more: boolean
    readonly uncounted: boolean
    /** The first event of the rules that cannot be read; null if there is none. */
    readonly unreadableAt: number | null
  }>
  /** The change as it would be recorded. Throws `InputFault`. */
  changeOf(kind: PixelChange, text: Text): { readonly domain: string }
  /** Makes a change. Repeated changes with the same `once` are made only once. Throws `InputFault` and `Unavailable`. */
  change(
    organizationId: string,
    asked: { readonly kind: PixelChange; readonly text: Text },
    cause: { readonly actor: string; readonly once: string; readonly atMs: number },
  ): Promise<{ readonly changed: boolean }>
}

/** Opens the pixel for one use. */
export type WithPixel = <Result>(use: (pixel: PixelRules) => Promise<Result>) => Promise<Result>
