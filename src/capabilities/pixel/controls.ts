import type { Logger } from 'pino'
import { InputFault } from '../../administration/input.ts'
import type { PixelChange, PixelRules } from '../../administration/pixel/pixel.ts'
import type { Refusal } from '../../call/errors.ts'
import type { EventLog } from '../../event-log/port.ts'
import { openPixelCounters, type PixelCounters } from './counters.ts'
import { parseDomainOnly, parseLimit, parsePeriod } from './parse.ts'
import { periodEndMs } from './period.ts'
import { createPixelRules } from './rules.ts'
import { placeOf, type RuleCommand, rulesInOrder, rulesMax, windowsOf } from './rules-state.ts'

/** The pixel controls for operators and users: the rules with their usage, and the changes that partners can also make by calls. */

export type PixelControls = PixelRules & { close(): Promise<void> }

type ControlsOptions = {
  readonly eventLog: EventLog
  /** The database URL. It contains a password: never log it. */
  readonly url: string
  readonly logger: Logger
}

/** Connects only when the counters are needed. */
export const createPixelControls = ({ eventLog, url, logger }: ControlsOptions): PixelControls => {
  const model = createPixelRules(eventLog)
  let opened: PixelCounters | null = null
  const counters = (): PixelCounters => (opened ??= openPixelCounters({ url, logger }))

  return {
    rules: async (organizationId, { search, after, max, atMs }) => {
      const known = await model.read(organizationId)
      const found = rulesInOrder(known, search).filter(
        ({ domain, period }) => placeOf(domain, period) > after,
      )
      const page = found.slice(0, max)
      const windows = windowsOf(page, atMs)
      const used =
        windows.length === 0
          ? []
          : await counters()
              .used(organizationId, windows)
              .catch((error: unknown) => {
                logger.warn({ err: error }, 'pixel counters could not be read')
                return null
              })
      const counted = new Map(
        windows.map(({ domain, period, periodStart }, n) => [
          placeOf(domain, period),
          { used: used?.[n] ?? null, resetsAt: new Date(periodEndMs(period, periodStart)) },
        ]),
      )
      const ofBlock = { used: null, resetsAt: null }
      return {
        rules: page.map((rule) => {
          const place = placeOf(rule.domain, rule.period)
          return { ...rule, place, ...(counted.get(place) ?? ofBlock) }
        }),
        count: known.rules.size,
        more: found.length > max,
        unreadableAt: known.unreadableAt,
        uncounted: used === null,
      }
    },
    changeOf: pixelChangeOf,
    change: async (organizationId, { kind, text }, cause) => {
      const { changed, tooMany } = await model.change(organizationId, pixelChangeOf(kind, text), cause)
      if (tooMany) throw new InputFault('domain', `there are already ${rulesMax} rules; remove one first`)
      return { changed }
    },
    close: async () => {
      await opened?.close()
    },
  }
}

const pixelChangeOf = (kind: PixelChange, text: (name: string) => string): RuleCommand => {
  const body = { domain: text('domain').trim(), period: text('period'), number: numberIn(text('number')) }
  switch (kind) {
    case 'limit':
      return { kind, ...inputOf(parseLimit(body)) }
    case 'unlimit':
      return { kind, ...inputOf(parsePeriod(body)) }
    default:
      return { kind, ...inputOf(parseDomainOnly(body)) }
  }
}

const numberIn = (text: string): number => (/^\d{1,10}$/.test(text.trim()) ? Number(text) : Number.NaN)

const inputOf = <Input>(parsed: { readonly input: Input } | { readonly refusal: Refusal }): Input => {
  if ('input' in parsed) return parsed.input
  const { details, message } = parsed.refusal
  const field = 'parameter' in details && typeof details.parameter === 'string' ? details.parameter : 'domain'
  const expected = 'expected' in details && typeof details.expected === 'string' ? details.expected : null
  throw new InputFault(field, expected === null ? message : `the value must be ${expected}`)
}
