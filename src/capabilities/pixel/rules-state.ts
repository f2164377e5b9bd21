import type { DomainEvent, DomainEventOf } from '../../events/catalogue.ts'
import type { PixelPeriod } from '../../events/pixel.ts'
import { coveringDomains } from './domain.ts'
import { periodStart } from './period.ts'

/** A limit or a block. It covers its domain and all subdomains. */
export type PixelRule = {
  readonly domain: string
  /** Null for a block. The daily and monthly limits of a domain are separate rules. */
  readonly period: PixelPeriod | null
  /** Null for a block. */
  readonly number: number | null
  readonly actor: string
  readonly at: string
}

/** The pixel rules of one organization, folded from its stream. */
export type PixelRules = {
  /** The revision of the last folded event; −1 before the first. */
  readonly revision: number
  readonly rules: ReadonlyMap<string, PixelRule>
  /** The revision of the first unreadable event. These rules then allow nothing, because the event may be a block. */
  readonly unreadableAt: number | null
}

/** Rules that change in place, because copying ten thousand rules for every event would take quadratic time. */
export type LiveRules = {
  revision: number
  readonly rules: Map<string, PixelRule>
  unreadableAt: number | null
}

export type PixelEvent = DomainEventOf<
  'PixelLimitSet' | 'PixelLimitRemoved' | 'PixelBlocked' | 'PixelUnblocked'
>

/**
 * The maximum number of rules that an organization can have. More rules would be a mistake in a partner's program, and a list must fit into
 * one answer.
 */
export const rulesMax = 10_000

export const isPixelEvent = (event: DomainEvent): event is PixelEvent => event.type.startsWith('Pixel')

/** Returns the sort key of a rule. Rules are sorted by domain, and a domain's block comes before its limits. */
export const placeOf = (domain: string, period: PixelPeriod | null): string => `${domain} ${period ?? ''}`

export type RuleCommand =
  | { readonly kind: 'limit'; readonly domain: string; readonly period: PixelPeriod; readonly number: number }
  | { readonly kind: 'unlimit'; readonly domain: string; readonly period: PixelPeriod }
  | { readonly kind: 'block' | 'unblock'; readonly domain: string }

/**
 * Returns the event that makes the change; null if nothing would change; `too_many` if the organization already has `rulesMax`
 * rules and this would add one.
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

/** Folds one event. Null stands for an unreadable event, which makes the rules uncertain. */
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
      // A repeated block changes nothing, so that the block keeps its author and date.
      if (!live.rules.has(place)) live.rules.set(place, { domain, period: null, number: null, ...by })
      return
    }
    case 'PixelUnblocked':
      live.rules.delete(placeOf(domain, null))
  }
}

/** All rules, or those whose domain contains `search`, in order. */
export const rulesInOrder = ({ rules }: PixelRules, search = ''): PixelRule[] =>
  [...rules]
    .filter(([, { domain }]) => domain.includes(search))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, rule]) => rule)

export type LimitWindow = {
  readonly domain: string
  readonly period: PixelPeriod
  readonly number: number
  readonly periodStart: string
}

/** The rules that cover a host at one moment. With a block, the list of limits is empty, because nothing is counted. */
export type MatchedRules = { readonly blockedBy: string | null; readonly limits: readonly LimitWindow[] }

const periods = ['day', 'month'] as const

/** Finds the nearest block on the host or a parent domain, or else every limit on them. */
export const matchRules = ({ rules }: PixelRules, host: string, atMs: number): MatchedRules => {
  if (rules.size === 0) return { blockedBy: null, limits: [] }
  const covering = coveringDomains(host)
  const blockedBy = covering.find((domain) => rules.has(placeOf(domain, null))) ?? null
  if (blockedBy !== null) return { blockedBy, limits: [] }
  const limits = covering.flatMap((domain) => periods.map((period) => rules.get(placeOf(domain, period))))
  return { blockedBy, limits: windowsOf(limits, atMs) }
}

export const windowsOf = (rules: readonly (PixelRule | undefined)[], atMs: number): LimitWindow[] =>
  rules.flatMap((rule) => {
    if (rule === undefined || rule.period === null || rule.number === null) return []
    const { domain, period, number } = rule
    return [{ domain, period, number, periodStart: periodStart(period, atMs) }]
  })
