import type { Logger } from 'pino'
import type { AnyCapabilityForm, Caller, CapabilityForm } from '../../call/form.ts'
import type { EventLog } from '../../event-log/port.ts'
import type { Secrets } from '../../guard/secrets.ts'
import type {
  PixelBlock,
  PixelBlockRemoval,
  PixelBlocks,
  PixelDecision,
  PixelLimit,
  PixelLimitRemoval,
  PixelLimits,
} from './contract.ts'
import { answerMaxMs, CountersUnavailable, type HitVerdict, type PixelCounters, within } from './counters.ts'
import {
  type Changed,
  type CountedLimit,
  decideBlocked,
  decideBlocksListed,
  decideHit,
  decideLimitRemoved,
  decideLimitSet,
  decideLimitsListed,
  decideUnblocked,
} from './decide.ts'
import {
  type DomainInput,
  type HitInput,
  type LimitInput,
  type PeriodInput,
  parseDomainOnly,
  parseHit,
  parseLimit,
  parsePeriod,
} from './parse.ts'
import { periodStart } from './period.ts'
import { openPostgresCounters } from './postgres-counters.ts'
import { openRedisCounters } from './redis-counters.ts'
import { type Cause, openPixelRules, type PixelRulesModel } from './rules.ts'
import { allLimits, type LimitWindow, matchRules } from './rules-state.ts'

/**
 * The pixel controls (Spec §4.5, §4.6): how often an organization's pixel may fire for a domain in a UTC day or month,
 * and where it may not fire at all; and the decision that makes both hold (decision 23). Rules are events; hits are
 * counters. Free, like every rule of the tariff about them says.
 *
 * A hit belongs to the period in which the process that took the call saw it arrive: clocks that differ between
 * processes move the seam between two periods by that much, and no hit is counted twice or not at all.
 *
 * A hit is counted before its call is recorded. When that fails the caller gets an error and fires nothing, and the hit
 * stays counted: a cap may be missed by such hits, never exceeded. Asked again with its hit id it is the same hit.
 */
export type PixelRoom = {
  readonly rules: PixelRulesModel
  readonly counters: PixelCounters
  /** Keyed: what partners call their hits is nobody's business, and may be somebody's address. */
  readonly requestHmac: Secrets['requestHmac']
  readonly logger: { warn(fields: object, message: string): void }
  readonly observe?: PixelObserver | undefined
}

/** What operations wants to know about hits. Told on every one of them, so it has to be cheap. */
export type PixelObserver = {
  readonly decided: (reason: PixelDecision['reason']) => void
  /** Rules or counters did not answer in time: a hit does not fire, or limits are told without what is used. */
  readonly countersFailed: () => void
}

/**
 * Opens what the controls stand on, ready to answer when it resolves. Counters stand in Redis where there is one for all
 * processes, otherwise in the database; whoever changes from one to the other begins to count anew.
 */
export const openPixel = async ({
  eventLog,
  requestHmac,
  databaseUrl,
  redisUrl,
  logger,
  observe,
}: {
  eventLog: EventLog
  requestHmac: Secrets['requestHmac']
  databaseUrl: string
  /** Undefined: the counters stand in the database. Holds a password: never logged. */
  redisUrl: string | undefined
  logger: Logger
  observe?: PixelObserver
}): Promise<OpenedPixel> => {
  const rules = await openPixelRules({ eventLog, logger })
  const counters =
    redisUrl === undefined
      ? openPostgresCounters({ url: databaseUrl, logger })
      : await openRedisCounters({ url: redisUrl, logger })
  const close = async (): Promise<void> => {
    await counters.close()
    await rules.stop()
  }
  try {
    await rules.caughtUp
  } catch (error) {
    await close()
    throw error
  }
  return {
    forms: pixelForms({ rules, counters, requestHmac, logger, observe }),
    failure: rules.failure,
    doubtful: rules.doubtful,
    close,
  }
}

export type OpenedPixel = {
  readonly forms: readonly AnyCapabilityForm[]
  /** Why rules set elsewhere may not be heard of at once, or cannot be told; null while all is well. */
  failure(): Error | null
  /** Organizations whose rules cannot be read. */
  doubtful(): number
  /** After the host: what is in flight is still counted. */
  close(): Promise<void>
}

/** The seven routes, all on the API host, all for keys with `pixel_control`. */
export const pixelForms = (room: PixelRoom): AnyCapabilityForm[] => [
  limitSet(room),
  limitRemoved(room),
  limitsListed(room),
  blocked(room),
  unblocked(room),
  blocksListed(room),
  decided(room),
]

const shared = { capability: 'pixel', permission: 'pixel_control' } as const
const limitPath = '/pixel/limit'
const blockPath = '/pixel/block'

const limitSet = (room: PixelRoom): CapabilityForm<LimitInput, Changed<CountedLimit>, PixelLimit> => ({
  ...shared,
  method: 'POST',
  path: limitPath,
  parse: parseLimit,
  gather: async (input, caller) => {
    const limit = { ...input, periodStart: periodStart(input.period, caller.atMs) }
    const command = { kind: 'limit', ...input } as const
    const { tooMany } = await room.rules.change(caller.key.organizationId, command, causeOf(caller))
    if (tooMany) return 'too_many'
    const [counted = { limit, used: null }] = await countedLimits(room, caller, [limit])
    return counted
  },
  decide: decideLimitSet,
})

const limitRemoved = ({
  rules,
}: PixelRoom): CapabilityForm<PeriodInput, { removed: boolean }, PixelLimitRemoval> => ({
  ...shared,
  method: 'DELETE',
  path: limitPath,
  parse: parsePeriod,
  gather: async (input, caller) => {
    const command = { kind: 'unlimit', ...input } as const
    const { changed } = await rules.change(caller.key.organizationId, command, causeOf(caller))
    return { removed: changed }
  },
  decide: decideLimitRemoved,
})

const limitsListed = (room: PixelRoom): CapabilityForm<null, readonly CountedLimit[], PixelLimits> => ({
  ...shared,
  method: 'GET',
  path: limitPath,
  parse: () => ({ input: null }),
  gather: async (_input, caller) =>
    countedLimits(room, caller, allLimits(await room.rules.of(caller.key.organizationId), caller.atMs)),
  decide: decideLimitsListed,
})

const blocked = ({
  rules,
}: PixelRoom): CapabilityForm<DomainInput, Changed<{ blockedAt: string }>, PixelBlock> => ({
  ...shared,
  method: 'POST',
  path: blockPath,
  parse: parseDomainOnly,
  gather: async ({ domain }, caller) => {
    const command = { kind: 'block', domain } as const
    const after = await rules.change(caller.key.organizationId, command, causeOf(caller))
    if (after.tooMany) return 'too_many'
    // Unblocked by somebody else between then and now: it was blocked by this call all the same.
    return { blockedAt: after.rules.blocks.get(domain) ?? new Date(caller.atMs).toISOString() }
  },
  decide: decideBlocked,
})

const unblocked = ({
  rules,
}: PixelRoom): CapabilityForm<DomainInput, { removed: boolean }, PixelBlockRemoval> => ({
  ...shared,
  method: 'DELETE',
  path: blockPath,
  parse: parseDomainOnly,
  gather: async ({ domain }, caller) => {
    const command = { kind: 'unblock', domain } as const
    const { changed } = await rules.change(caller.key.organizationId, command, causeOf(caller))
    return { removed: changed }
  },
  decide: decideUnblocked,
})

const blocksListed = ({
  rules,
}: PixelRoom): CapabilityForm<null, readonly (readonly [string, string])[], PixelBlocks> => ({
  ...shared,
  method: 'GET',
  path: blockPath,
  parse: () => ({ input: null }),
  gather: async (_input, caller) => [...(await rules.of(caller.key.organizationId)).blocks].sort(byDomain),
  decide: decideBlocksListed,
})

const decided = (room: PixelRoom): CapabilityForm<HitInput, HitVerdict | 'unavailable', PixelDecision> => ({
  ...shared,
  method: 'POST',
  path: '/pixel/decide',
  parse: parseHit,
  gather: (input, caller) => judgeHit(room, input, caller),
  decide: (verdict) => {
    const decision = decideHit(verdict)
    // Here, because only the decision knows its reason; nothing in it depends on who is told.
    if ('result' in decision) room.observe?.decided(decision.result.reason)
    return decision
  },
})

const judgeHit = async (
  { rules, counters, requestHmac, logger, observe }: PixelRoom,
  { host, hitId: named }: HitInput,
  { key: { organizationId }, atMs, requestId }: Caller,
): Promise<HitVerdict | 'unavailable'> => {
  try {
    const now = rules.of(organizationId)
    const known = now instanceof Promise ? await within(answerMaxMs, 'pixel rules', now) : now
    const matched = matchRules(known, host, atMs)
    const { blockedBy, limits } = matched
    // UTF-16, so that halves of characters, which UTF-8 cannot tell apart, stay different ids.
    const hitId =
      named === null
        ? null
        : requestHmac(`hit\n${Buffer.from(named, 'utf16le').toString('base64url')}`).toString('base64url')
    // Nothing to count and nothing to remember.
    if (hitId === null && limits.length === 0) return { rules: matched, fires: blockedBy === null, used: [] }
    return await counters.take({ organizationId, host, hitId, atMs, rules: matched })
  } catch (error) {
    observe?.countersFailed()
    // The counters tell themselves when they stop and start to answer: once, not for every hit.
    if (!(error instanceof CountersUnavailable))
      logger.warn({ err: error, requestId }, 'a pixel hit could not be judged')
    return 'unavailable'
  }
}

/** What is used of each limit; unknown when the counters do not answer, because the rules are known all the same. */
const countedLimits = async (
  { counters, logger, observe }: PixelRoom,
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
  requestId,
  atMs,
})

const byDomain = ([a]: readonly [string, string], [b]: readonly [string, string]): number =>
  a < b ? -1 : a > b ? 1 : 0
