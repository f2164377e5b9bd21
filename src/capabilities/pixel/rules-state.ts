import type { DomainEvent, DomainEventOf } from '../../events/catalogue.ts'
import type { PixelPeriod } from '../../events/pixel.ts'
import { coveringDomains } from './domain.ts'
import { periodStart } from './period.ts'

/** A limit or a block: who set it, and when. It covers its domain and all subdomains. */
export type PixelRule = {
  readonly domain: string
  /** Null: a block. Day and month limits of one domain are separate rules. */
  readonly period: PixelPeriod | null
  /** Null: a block. */
  readonly number: number | null
  readonly actor: string
  readonly at: string
}

/** The pixel rules of one organization, folded from its stream. */
export type PixelRules = {
  /** The last event folded in; −1 before the first. */
  readonly revision: number
  /** By `placeOf`. */
  readonly rules: ReadonlyMap<string, PixelRule>
  /** The first event that cannot be read. It may be a block, so these rules allow nothing. */
  readonly unreadableAt: number | null
}

/** Rules that change in place: copying ten thousand rules for every event of a long stream would take quadratic time. */
export type LiveRules = {
  revision: number
  readonly rules: Map<string, PixelRule>
  unreadableAt: number | null
}

export type PixelEvent = DomainEventOf<
  'PixelLimitSet' | 'PixelLimitRemoved' | 'PixelBlocked' | 'PixelUnblocked'
>

/** More is a mistake in someone's program; and every list of rules is one answer. */
export const rulesMax = 10_000

export const isPixelEvent = (event: DomainEvent): event is PixelEvent => event.type.startsWith('Pixel')

/** The place of a rule among others: by domain, and the block of a domain before its limits. */
export const placeOf = (domain: string, period: PixelPeriod | null): string => `${domain} ${period ?? ''}`

/** The change an organization requests. */
export type RuleCommand =
  | { readonly kind: 'limit'; readonly domain: string; readonly period: PixelPeriod; readonly number: number }
  | { readonly kind: 'unlimit'; readonly domain: string; readonly period: PixelPeriod }
  | { readonly kind: 'block' | 'unblock'; readonly domain: string }

/**
 * The event that makes the change; null if nothing would change, and then nothing is recorded. `too_many`: the organization has
 * `rulesMax` rules, and this would be one more.
 */
export const changeOf = (
  { rules }: PixelRules,
  organizationId: string,
  command: RuleCommand,
): PixelEvent | null | 'too_many' => {
  const { domain } = command
  const of = { organization_id: organizationId, domain }
  const period = 'period' in command ? command.period : null
  const before = rules.get(placeOf(domain, period))
  const full = rules.size >= rulesMax && before === undefined
  switch (command.kind) {
    case 'limit': {
      if (before?.number === command.number) return null
      const { period, number } = command
      return full ? 'too_many' : { type: 'PixelLimitSet', data: { ...of, period, number } }
    }
    case 'unlimit':
      return before === undefined
        ? null
        : { type: 'PixelLimitRemoved', data: { ...of, period: command.period } }
    case 'block':
      if (before !== undefined) return null
      return full ? 'too_many' : { type: 'PixelBlocked', data: of }
    case 'unblock':
      return before === undefined ? null : { type: 'PixelUnblocked', data: of }
  }
}

export const emptyRules = (): LiveRules => ({ revision: -1, rules: new Map(), unreadableAt: null })

/** Folds one event in. Null is an event that cannot be read: it counts as a revision and makes the rules uncertain. */
export const applyPixelEvent = (
  live: LiveRules,
  event: PixelEvent | null,
  { revision, ...by }: { revision: number; actor: string; at: string },
): void => {
  live.revision = revision
  if (event === null) {
    live.unreadableAt ??= revision
    return
  }
  const { domain } = event.data
  switch (event.type) {
    case 'PixelLimitSet': {
      const { period, number } = event.data
      live.rules.set(placeOf(domain, period), { domain, period, number, ...by })
      return
    }
    case 'PixelLimitRemoved':
      live.rules.delete(placeOf(domain, event.data.period))
      return
    case 'PixelBlocked': {
      const place = placeOf(domain, null)
      // A block that already exists keeps its author and date.
      if (!live.rules.has(place)) live.rules.set(place, { domain, period: null, number: null, ...by })
      return
    }
    case 'PixelUnblocked':
      live.rules.delete(placeOf(domain, null))
  }
}

/** All rules, or those of domains that contain `search`, by place. */
export const rulesInOrder = ({ rules }: PixelRules, search = ''): PixelRule[] =>
  [...rules]
    .filter(([, { domain }]) => domain.includes(search))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, rule]) => rule)

/** A limit with the period it counts in at some moment. */
export type LimitWindow = {
  readonly domain: string
  readonly period: PixelPeriod
  readonly number: number
  readonly periodStart: string
}

/** The rules that cover a host at some moment. If there is a block, limits are left out: nothing is counted. */
export type MatchedRules = { readonly blockedBy: string | null; readonly limits: readonly LimitWindow[] }

const periods = ['day', 'month'] as const

/** Any block on the host or above it decides, and the nearest is named; otherwise every limit on the host or above it counts. */
export const matchRules = ({ rules }: PixelRules, host: string, atMs: number): MatchedRules => {
  if (rules.size === 0) return { blockedBy: null, limits: [] }
  const covering = coveringDomains(host)
  const blockedBy = covering.find((domain) => rules.has(placeOf(domain, null))) ?? null
  if (blockedBy !== null) return { blockedBy, limits: [] }
  const limits = covering.flatMap((domain) => periods.map((period) => rules.get(placeOf(domain, period))))
  return { blockedBy, limits: windowsOf(limits, atMs) }
}

/** The limits among rules, in their order. */
export const windowsOf = (rules: readonly (PixelRule | undefined)[], atMs: number): LimitWindow[] =>
  rules.flatMap((rule) => {
    if (rule === undefined || rule.period === null || rule.number === null) return []
    const { domain, period, number } = rule
    return [{ domain, period, number, periodStart: periodStart(period, atMs) }]
  })
