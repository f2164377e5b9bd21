import { hash } from 'node:crypto'
import { z } from 'zod'
import { pixelPeriod } from '../../events/pixel.ts'
import type { MatchedRules } from './rules-state.ts'

/** How a hit and the rules it was judged by are written down beside the counters, to give the same answer again. */

const hashCharacters = 22

/**
 * A hit as it is remembered: by its host and its id there. The same id on another host is another hit, or what was answered
 * for one domain would fire a pixel on another. 128 bits of SHA-256: hit ids may hold anything, and what they are called is
 * nobody's business.
 */
export const hitHash = (host: string, hitId: string): string =>
  // UTF-16, so that halves of characters, which UTF-8 cannot tell apart, stay different ids. A host holds no line end.
  hash('sha256', Buffer.from(`${host}\n${hitId}`, 'utf16le'), 'base64url').slice(0, hashCharacters)

const written = z.tuple([
  z.string().nullable(),
  z.array(z.tuple([z.string(), pixelPeriod, z.string(), z.int()])),
])

export const writeRules = ({ blockedBy, limits }: MatchedRules): string =>
  JSON.stringify([
    blockedBy,
    limits.map(({ domain, period, periodStart, number }) => [domain, period, periodStart, number]),
  ])

/** Throws for anything but what `writeRules` wrote. */
export const readRules = (text: string): MatchedRules => {
  const [blockedBy, limits] = written.parse(JSON.parse(text))
  return {
    blockedBy,
    limits: limits.map(([domain, period, periodStart, number]) => ({ domain, period, periodStart, number })),
  }
}
