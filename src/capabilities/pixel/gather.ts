import type { Caller } from '../../call/form.ts'
import type { Secrets } from '../../guard/secrets/secrets.ts'
import type { PixelDecision } from './contract.ts'
import { answeredInTime, CountersUnavailable, type HitVerdict, type PixelCounters } from './counters.ts'
import type { Changed, CountedLimit } from './decide.ts'
import type { DomainInput, HitInput, LimitInput, PeriodInput } from './parse.ts'
import { periodStart } from './period.ts'
import type { Cause, PixelRulesModel } from './rules.ts'
import {
  type LimitWindow,
  matchRules,
  type PixelRule,
  placeOf,
  rulesInOrder,
  windowsOf,
} from './rules-state.ts'

export type PixelParts = {
  readonly rules: PixelRulesModel
  readonly counters: PixelCounters
  /** Hit ids are hashed with a key, because partners choose them, and an id can be a person's address. */
  readonly requestHmac: Secrets['requestHmac']
  readonly logger: { warn(fields: object, message: string): void }
  readonly observe?: PixelObserver | undefined
}

/** Used by every hit, so it must be cheap. */
export type PixelObserver = {
  readonly decided: (reason: PixelDecision['reason']) => void
  /** Called when a hit does not fire, or limits are shown without usage, because rules or counters did not answer in time. */
  readonly countersFailed: () => void
}

export const setLimit = async (
  parts: PixelParts,
  input: LimitInput,
  caller: Caller,
): Promise<Changed<CountedLimit>> => {
  const limit = { ...input, periodStart: periodStart(input.period, caller.atMs) }
  const command = { kind: 'limit', ...input } as const
  const { tooMany } = await parts.rules.change(caller.key.organizationId, command, causeOf(caller))
  if (tooMany) return 'too_many'
  const [counted = { limit, used: null }] = await countedLimits(parts, caller, [limit])
  return counted
}

export const listLimits = async (parts: PixelParts, caller: Caller): Promise<CountedLimit[]> =>
  countedLimits(
    parts,
    caller,
    windowsOf(rulesInOrder(await parts.rules.certain(caller.key.organizationId)), caller.atMs),
  )

export const block = async (
  { rules }: PixelParts,
  { domain }: DomainInput,
  caller: Caller,
): Promise<Changed<{ blockedAt: string }>> => {
  const command = { kind: 'block', domain } as const
  const { before, tooMany } = await rules.change(caller.key.organizationId, command, causeOf(caller))
  if (tooMany) return 'too_many'
  const earlier = before.rules.get(placeOf(domain, null))
  return { blockedAt: earlier?.at ?? new Date(caller.atMs).toISOString() }
}

/** Removes a limit or a block, and returns whether there was one. */
export const remove = async (
  { rules }: PixelParts,
  command: ({ kind: 'unlimit' } & PeriodInput) | ({ kind: 'unblock' } & DomainInput),
  caller: Caller,
): Promise<{ removed: boolean }> => {
  const { changed } = await rules.change(caller.key.organizationId, command, causeOf(caller))
  return { removed: changed }
}

export const listBlocks = async (
  { rules }: PixelParts,
  caller: Caller,
): Promise<readonly Pick<PixelRule, 'domain' | 'at'>[]> =>
  rulesInOrder(await rules.certain(caller.key.organizationId)).filter(({ period }) => period === null)

export const judgeHit = async (
  { rules, counters, requestHmac, logger, observe }: PixelParts,
  { host, hitId: named }: HitInput,
  { key: { organizationId }, atMs, requestId }: Caller,
): Promise<HitVerdict | 'unavailable'> => {
  try {
    const known = await answeredInTime('pixel rules', rules.certain(organizationId))
    const matched = matchRules(known, host, atMs)
    const { blockedBy, limits } = matched
    // Unlike UTF-8, UTF-16 keeps lone surrogates distinct.
    const hitId =
      named === null
        ? null
        : requestHmac(`hit\n${Buffer.from(named, 'utf16le').toString('base64url')}`).toString('base64url')
    if (hitId === null && limits.length === 0) return { rules: matched, fires: blockedBy === null, used: [] }
    return await counters.take({ organizationId, host, hitId, atMs, rules: matched })
  } catch (error) {
    observe?.countersFailed()
    // The counters log their own failure once, not for every hit.
    if (!(error instanceof CountersUnavailable))
      logger.warn({ err: error, requestId }, 'a pixel hit could not be judged')
    return 'unavailable'
  }
}

/** Returns the limits with their usage, which is null if the counters do not answer. */
const countedLimits = async (
  { counters, logger, observe }: PixelParts,
  { key: { organizationId }, requestId }: Caller,
  limits: readonly LimitWindow[],
): Promise<CountedLimit[]> => {
  if (limits.length === 0) return []
  const used = await counters.used(organizationId, limits).catch((error: unknown) => {
    observe?.countersFailed()
    logger.warn({ err: error, requestId }, 'pixel counters could not be read')
    return []
  })
  return limits.map((limit, i) => ({ limit, used: used[i] ?? null }))
}

const causeOf = ({ key: { keyId }, requestId, atMs }: Caller): Cause => ({
  actor: `key:${keyId}`,
  once: requestId,
  requestId,
  atMs,
})
