import type { LastEvent } from '../../event-log/append-chained.ts'
import type { DomainEvent, DomainEventOf } from '../../events/catalogue.ts'
import type { PixelPeriod } from '../../events/pixel.ts'
import { coveringDomains } from './domain.ts'
import { periodStart } from './period.ts'

/** The pixel rules of one organization, folded from its stream. A rule covers its domain and all subdomains. */
export type PixelRules = {
  /** The last event folded in; −1 before the first. */
  readonly revision: number
  readonly limits: ReadonlyMap<string, DomainLimits>
  /** When each blocked domain was blocked. */
  readonly blocks: ReadonlyMap<string, string>
  /** Number of limits and blocks together. */
  readonly count: number
  /** The first event that cannot be read. It may be a block, so these rules allow nothing. */
  readonly unreadableAt: number | null
}

/** Day and month limits of one domain are separate rules. */
type DomainLimits = { readonly [Period in PixelPeriod]?: number }

type LimitRule = { readonly domain: string; readonly period: PixelPeriod; readonly number: number }

export type PixelEvent = DomainEventOf<
  'PixelLimitSet' | 'PixelLimitRemoved' | 'PixelBlocked' | 'PixelUnblocked'
>

/** More is a mistake in someone's program; and every list of rules is one answer. */
export const rulesMax = 10_000

export const isPixelEvent = (event: DomainEvent): event is PixelEvent => event.type.startsWith('Pixel')

/** The change an organization requests. */
export type RuleCommand =
  | ({ readonly kind: 'limit' } & LimitRule)
  | { readonly kind: 'unlimit'; readonly domain: string; readonly period: PixelPeriod }
  | { readonly kind: 'block' | 'unblock'; readonly domain: string }

/**
 * The event that makes the change; null if nothing would change, and then nothing is recorded. `too_many`: the organization has
 * `rulesMax` rules, and this would be one more.
 */
export const changeOf = (
  rules: PixelRules,
  organizationId: string,
  command: RuleCommand,
): PixelEvent | null | 'too_many' => {
  const { domain } = command
  const of = { organization_id: organizationId, domain }
  const full = rules.count >= rulesMax
  const limits = rules.limits.get(domain)
  switch (command.kind) {
    case 'limit': {
      const { period, number } = command
      if (limits?.[period] === number) return null
      if (full && limits?.[period] === undefined) return 'too_many'
      return { type: 'PixelLimitSet', data: { ...of, period, number } }
    }
    case 'unlimit':
      if (limits?.[command.period] === undefined) return null
      return { type: 'PixelLimitRemoved', data: { ...of, period: command.period } }
    case 'block':
      if (rules.blocks.has(domain)) return null
      return full ? 'too_many' : { type: 'PixelBlocked', data: of }
    case 'unblock':
      return rules.blocks.has(domain) ? { type: 'PixelUnblocked', data: of } : null
  }
}

/** Rules that change in place: copying ten thousand rules for every event of a long stream would take quadratic time. */
export type LiveRules = {
  revision: number
  /** The event at that revision, to which the next is chained. */
  last: LastEvent | null
  readonly limits: Map<string, DomainLimits>
  readonly blocks: Map<string, string>
  count: number
  unreadableAt: number | null
}

export const emptyRules = (): LiveRules => ({
  revision: -1,
  last: null,
  limits: new Map(),
  blocks: new Map(),
  count: 0,
  unreadableAt: null,
})

/** Folds one event in. Null is an event that cannot be read: it counts as a revision and makes the rules uncertain. */
export const applyPixelEvent = (
  rules: LiveRules,
  event: PixelEvent | null,
  { revision, effectiveAt }: { revision: number; effectiveAt: string },
): void => {
  rules.revision = revision
  if (event === null) {
    rules.unreadableAt ??= revision
    return
  }
  const { domain } = event.data
  switch (event.type) {
    case 'PixelLimitSet': {
      const before = rules.limits.get(domain)
      if (before?.[event.data.period] === undefined) rules.count++
      rules.limits.set(domain, { ...before, [event.data.period]: event.data.number })
      return
    }
    case 'PixelLimitRemoved': {
      const { [event.data.period]: removed, ...kept } = rules.limits.get(domain) ?? {}
      if (removed === undefined) return
      rules.count--
      if (Object.keys(kept).length > 0) rules.limits.set(domain, kept)
      else rules.limits.delete(domain)
      return
    }
    case 'PixelBlocked':
      if (rules.blocks.has(domain)) return
      rules.count++
      rules.blocks.set(domain, effectiveAt)
      return
    case 'PixelUnblocked':
      if (rules.blocks.delete(domain)) rules.count--
  }
}

/** A limit with the period it counts in at some moment. */
export type LimitWindow = LimitRule & { readonly periodStart: string }

/** The rules that cover a host at some moment. If there is a block, limits are left out: nothing is counted. */
export type MatchedRules = { readonly blockedBy: string | null; readonly limits: readonly LimitWindow[] }

const periods = ['day', 'month'] as const

/** Any block on the host or above it decides, and the nearest is named; otherwise every limit on the host or above it counts. */
export const matchRules = (rules: PixelRules, host: string, atMs: number): MatchedRules => {
  if (rules.count === 0) return { blockedBy: null, limits: [] }
  const covering = coveringDomains(host)
  const blockedBy = covering.find((domain) => rules.blocks.has(domain)) ?? null
  if (blockedBy !== null) return { blockedBy, limits: [] }
  return { blockedBy, limits: covering.flatMap((domain) => windowsOf(rules, domain, atMs)) }
}

/** Every limit, by domain and period. */
export const allLimits = (rules: PixelRules, atMs: number): LimitWindow[] =>
  [...rules.limits.keys()].sort().flatMap((domain) => windowsOf(rules, domain, atMs))

const windowsOf = (rules: PixelRules, domain: string, atMs: number): LimitWindow[] => {
  const limits = rules.limits.get(domain)
  if (limits === undefined) return []
  return periods.flatMap((period) => {
    const number = limits[period]
    return number === undefined ? [] : [{ domain, period, number, periodStart: periodStart(period, atMs) }]
  })
}
