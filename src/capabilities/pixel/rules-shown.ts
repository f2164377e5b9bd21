import { LRUCache } from 'lru-cache'
import { type EventLog, StreamMissing } from '../../event-log/port.ts'
import type { PixelPeriod } from '../../events/pixel.ts'
import { pixelStream } from '../../events/streams.ts'
import { readable } from './rules-memory.ts'
import { applyPixelEvent, emptyRules, type LiveRules, type PixelEvent } from './rules-state.ts'

/** The rules of an organization for people: with their author and date. Hits are not judged by these. */

export type ShownRule = {
  readonly domain: string
  /** Null: a block. */
  readonly period: PixelPeriod | null
  readonly number: number | null
  readonly actor: string
  readonly at: string
}

type SetBy = { readonly actor: string; readonly at: string }
/** `setBy`: by the rule. */
type Book = { readonly rules: LiveRules; readonly setBy: Map<string, SetBy> }

export type ShownRules = {
  /** By domain; the block of a domain comes before its limits. */
  readonly rules: readonly ShownRule[]
  /** Number of all rules, regardless of the search. */
  readonly count: number
  readonly more: boolean
  /** The revision of the first event that cannot be read: it may be a block, so nothing fires. */
  readonly unreadableAt: number | null
}

/** Cached rules of recently viewed organizations: a stream is read once, and then from the last position. */
const rulesKeptMax = 100_000
const pageMax = 1_000

const ruleKey = (domain: string, period: PixelPeriod | null): string => `${domain} ${period ?? ''}`

const keyOf = ({ type, data }: PixelEvent): string =>
  ruleKey(data.domain, type === 'PixelLimitSet' || type === 'PixelLimitRemoved' ? data.period : null)

const remember = (setBy: Map<string, SetBy>, event: PixelEvent, by: SetBy): void => {
  const key = keyOf(event)
  if (event.type === 'PixelLimitRemoved' || event.type === 'PixelUnblocked') setBy.delete(key)
  // A block that already exists keeps its author and date.
  else if (event.type === 'PixelLimitSet' || !setBy.has(key)) setBy.set(key, by)
}

export const createShownRules = (eventLog: EventLog) => {
  const books = new LRUCache<string, Book>({
    maxSize: rulesKeptMax,
    sizeCalculation: ({ setBy }) => 1 + setBy.size,
  })

  const bookOf = async (organizationId: string): Promise<Book> => {
    const stream = pixelStream(organizationId)
    const book = books.get(organizationId) ?? { rules: emptyRules(), setBy: new Map() }
    const { rules, setBy } = book
    for (;;) {
      const page = await eventLog
        .read(stream, { from: rules.revision + 1, max: pageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      for (const recorded of page) {
        const { revision } = recorded
        // Another page may have read the stream meanwhile.
        if (revision !== rules.revision + 1) continue
        const event = readable(recorded)
        const at = event?.metadata.effective_at ?? ''
        applyPixelEvent(rules, event, { revision, effectiveAt: at })
        if (event !== null) remember(setBy, event, { actor: event.metadata.actor, at })
      }
      if (page.length < pageMax) break
    }
    // Set again, because its size changed. An entry larger than the whole cache is not kept.
    books.set(organizationId, book)
    return book
  }

  /** Throws `Unavailable` while the event log is unavailable. `search`: a part of the domain. */
  return async (
    organizationId: string,
    { search, after, max }: { readonly search: string; readonly after: string; readonly max: number },
  ): Promise<ShownRules> => {
    const { rules, setBy } = await bookOf(organizationId)
    const found = allOf(rules, setBy)
      .filter(({ domain, period }) => domain.includes(search) && ruleKey(domain, period) > after)
      .sort(byKey)
    return {
      rules: found.slice(0, max),
      count: rules.count,
      more: found.length > max,
      unreadableAt: rules.unreadableAt,
    }
  }
}

/** Where a page of rules ends, so that the next page can continue there. */
export const placeOfRule = ({ domain, period }: ShownRule): string => ruleKey(domain, period)

const byKey = (a: ShownRule, b: ShownRule): number => {
  const [left, right] = [placeOfRule(a), placeOfRule(b)]
  return left < right ? -1 : left > right ? 1 : 0
}

const allOf = ({ limits, blocks }: LiveRules, setBy: Book['setBy']): ShownRule[] => {
  const shown = (domain: string, period: PixelPeriod | null, number: number | null): ShownRule[] => {
    const by = setBy.get(ruleKey(domain, period))
    return by === undefined ? [] : [{ domain, period, number, ...by }]
  }
  return [
    ...[...blocks.keys()].flatMap((domain) => shown(domain, null, null)),
    ...[...limits].flatMap(([domain, { day, month }]) => [
      ...(day === undefined ? [] : shown(domain, 'day', day)),
      ...(month === undefined ? [] : shown(domain, 'month', month)),
    ]),
  ]
}
