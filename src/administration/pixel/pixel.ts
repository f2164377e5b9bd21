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
  /**
   * At most `max` rules after a position, in order of domain, with a domain's block before its limits. `search`: only domains whose name
   * contains it. Throws `Unavailable` if the event log is unavailable.
   */
  rules(
    organizationId: string,
    asked: { readonly search: string; readonly after: string; readonly max: number; readonly atMs: number },
  ): Promise<{
    readonly rules: readonly Rule[]
    readonly count: number
    readonly more: boolean
    /** True if the counters did not answer, so that the usage is unknown. */
    readonly uncounted: boolean
    /** The revision of the first unreadable event, which may be a block, so no pixel fires; null if there is none. */
    readonly unreadableAt: number | null
  }>
  /** The change as it would be recorded. Throws `InputFault` if a call with this input would be refused. */
  changeOf(kind: PixelChange, text: Text): { readonly domain: string }
  /** Makes a change. Repeated changes with the same `once` are made only once. Throws the errors of `changeOf`, and `Unavailable`. */
  change(
    organizationId: string,
    asked: { readonly kind: PixelChange; readonly text: Text },
    cause: { readonly actor: string; readonly once: string; readonly atMs: number },
  ): Promise<{ readonly changed: boolean }>
}

/** Opens the pixel for one use. */
export type WithPixel = <Result>(use: (pixel: PixelRules) => Promise<Result>) => Promise<Result>
