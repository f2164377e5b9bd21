import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import { type AppendPatience, appendPatience, appendUntilKnown } from '../../event-log/append-until-known.ts'
import { eventIdOf } from '../../event-log/event-id.ts'
import { follow } from '../../event-log/follow.ts'
import {
  AppendConflict,
  type EventLog,
  type RecordedEvent,
  StreamMissing,
  Unavailable,
  UnknownOutcome,
} from '../../event-log/port.ts'
import { type DecodedEvent, decodeEvent, encodeEvent } from '../../event-log/stored-event.ts'
import { checkEventData, currentVersion } from '../../events/catalogue.ts'
import { organizationId as organizationIdSchema } from '../../events/primitives.ts'
import { pixelStream } from '../../events/streams.ts'
import {
  applyPixelEvent,
  changeOf,
  emptyRules,
  isPixelEvent,
  type LiveRules,
  type PixelEvent,
  type PixelRules,
  type RuleCommand,
} from './rules-state.ts'

/**
 * The pixel rules of the organizations this process has heard of, in memory, fed by the event log: judging a hit asks
 * nobody for them. A change made here holds here when it is answered, elsewhere as soon as the subscription delivers it.
 *
 * An organization's rules are read from its stream when they are first needed and followed from then on. Reading
 * everybody's at the start would cost a look at the whole log, however old, for partners who never call.
 */
export type PixelRulesModel = {
  /** The rules now. Rejects with `Unavailable` when they are not known yet and the log does not tell them. */
  of(organizationId: string): PixelRules | Promise<PixelRules>
  /**
   * Makes a command so, and resolves with the rules after it. Nothing is recorded when it was so before. Commands of
   * one organization follow each other; those of other processes are noticed by the revision, and the command is judged
   * again. Throws `Unavailable`, and then the same command can simply be given again.
   */
  change(organizationId: string, command: RuleCommand, cause: Cause): Promise<RuleChange>
  readonly caughtUp: Promise<void>
  /** Why changes made elsewhere may not be heard of, or rules cannot be told; null while all is well. */
  failure(): Error | null
  /** Organizations with an event this release cannot read. Their rules are refused: it may be a block. */
  doubtful(): number
  stop(): Promise<void>
}

export type Cause = { readonly actor: string; readonly requestId: string; readonly atMs: number }

type RuleChange = {
  readonly rules: PixelRules
  /** False: it was so already, or could not be. */
  readonly changed: boolean
  readonly tooMany: boolean
}

/** Rules in memory, of all organizations together; an organization counts as one more. About 200 MB at most. */
const rulesHeldMax = 1_000_000
const pageMax = 1_000
/** Every lost race means that another process changed the same organization's rules just then. */
const attemptsMax = 10
/** A caller waits for a change. Longer than the deadline of one append, so that an unknown one is sent again. */
const changePatience = { ...appendPatience, unknownMs: 8_000 }
/** Of one organization in this process, waiting for each other. */
const changesWaitingMax = 100

const stream = pixelStream
const organizationOf = (name: string): string => name.slice(stream('').length)

type PixelRulesOptions = {
  readonly eventLog: EventLog
  readonly logger: Logger
  readonly patience?: AppendPatience
}

export const openPixelRules = async ({
  eventLog,
  logger,
  patience = changePatience,
}: PixelRulesOptions): Promise<PixelRulesModel> => {
  const known = new LRUCache<string, LiveRules>({
    maxSize: rulesHeldMax,
    sizeCalculation: ({ count }) => 1 + count,
  })
  const loading = new Map<string, Loading>()
  /** Organizations with an event that cannot be read. */
  const inDoubt = new Set<string>()
  const changes = new Map<string, { waiting: number; last: Promise<unknown> }>()

  /** In order and once: what comes again is known, and what leaves a hole makes this process read again. */
  const advance = (organizationId: string, revision: number, foldInto: (rules: LiveRules) => void): void => {
    const rules = known.peek(organizationId)
    if (rules === undefined || revision <= rules.revision) return
    if (revision > rules.revision + 1) return void known.delete(organizationId)
    foldInto(rules)
    // Again, for its size.
    known.set(organizationId, rules)
  }

  const hear = (recorded: RecordedEvent): void => {
    const { stream: name, revision } = recorded
    const organizationId = organizationOf(name)
    const load = loading.get(organizationId)
    if (load !== undefined) load.heard = Math.max(load.heard, revision)
    advance(organizationId, revision, (rules) => foldRecorded(rules, recorded))
  }

  /** The rules, if all of their events can be read: one that cannot may be a block. */
  const certain = (organizationId: string, rules: LiveRules): LiveRules => {
    if (rules.unreadableAt === null) return rules
    inDoubt.add(organizationId)
    throw new Unavailable(`${stream(organizationId)} cannot be read at revision ${rules.unreadableAt}`)
  }

  // Asked before any stream is read: what is recorded in between is met twice, never missed.
  const following = follow({
    eventLog,
    after: await eventLog.head(),
    prefixes: [stream('')],
    logger,
    apply: ({ recorded }) => hear(recorded),
    unreadable: (recorded) => {
      hear(recorded)
      const organizationId = organizationOf(recorded.stream)
      // A stream of other software, on a log that is shared, is about no organization.
      if (organizationIdSchema.safeParse(organizationId).success) inDoubt.add(organizationId)
    },
  })

  /** Reads what the stream holds beyond these rules. */
  const catchUp = async (organizationId: string, rules: LiveRules): Promise<void> => {
    for (;;) {
      const from = rules.revision + 1
      const page = await eventLog
        .read(stream(organizationId), { from, max: pageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      // The subscription may have been faster; then this folds nothing.
      for (const recorded of page) foldRecorded(rules, recorded)
      if (page.length < pageMax) return
    }
  }

  const load = async (organizationId: string, own: Loading): Promise<LiveRules> => {
    const rules = emptyRules()
    // Again for what was recorded after the read and heard before these rules could hear it. Ends: it only reads forward.
    do await catchUp(organizationId, rules)
    while (own.heard > rules.revision)
    known.set(organizationId, rules)
    return certain(organizationId, rules)
  }

  const of = (organizationId: string): LiveRules | Promise<LiveRules> => {
    const rules = known.get(organizationId)
    if (rules !== undefined) {
      if (rules.unreadableAt === null && following.failure() === null) return rules
      // Without the subscription what is known may be out of date, and a block that was set must hold.
      return catchUp(organizationId, rules).then(() => certain(organizationId, rules))
    }
    const under = loading.get(organizationId)
    if (under !== undefined) return under.rules
    const own: Loading = { heard: -1, rules: Promise.resolve(emptyRules()) }
    loading.set(organizationId, own)
    own.rules = load(organizationId, own).finally(() => loading.delete(organizationId))
    return own.rules
  }

  const changeNow = async (
    organizationId: string,
    command: RuleCommand,
    { actor, requestId, atMs }: Cause,
  ): Promise<RuleChange> => {
    const name = stream(organizationId)
    const effectiveAt = new Date(atMs).toISOString()
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const rules = await of(organizationId)
      // The subscription may be a moment behind, and "it is so already" has to be true.
      await catchUp(organizationId, rules)
      certain(organizationId, rules)
      const event = changeOf(rules, organizationId, command)
      if (event === null || event === 'too_many')
        return { rules, changed: false, tooMany: event === 'too_many' }
      const id = eventIdOf(name, requestId, 0)
      const encoded = encodeEvent(event, { id, actor, effectiveAt, requestId })
      try {
        const expected = rules.revision === -1 ? 'none' : rules.revision
        const { revision } = await appendUntilKnown(eventLog, name, expected, [encoded], patience)
        const own = (into: LiveRules): void => applyPixelEvent(into, event, { revision, effectiveAt })
        advance(organizationId, revision, own)
        // These may have been put aside for others in the meantime.
        if (rules.revision < revision) own(rules)
        return { rules, changed: true, tooMany: false }
      } catch (error) {
        failUnknown(error, name)
        if (!(error instanceof AppendConflict)) throw error
      }
    }
    throw new Unavailable(`${name} was changed by others ${attemptsMax} times in a row`)
  }

  const change: PixelRulesModel['change'] = async (organizationId, command, cause) => {
    const queue = changes.get(organizationId) ?? { waiting: 0, last: Promise.resolve() }
    if (queue.waiting >= changesWaitingMax)
      throw new Unavailable(`${changesWaitingMax} changes of ${stream(organizationId)} are waiting`)
    changes.set(organizationId, queue)
    queue.waiting++
    const own = queue.last.then(() => changeNow(organizationId, command, cause))
    queue.last = own.catch(() => undefined)
    try {
      return await own
    } finally {
      if (--queue.waiting === 0) changes.delete(organizationId)
    }
  }

  return {
    of,
    change,
    ...following,
    failure: () => {
      const [first] = inDoubt
      if (following.failure() !== null || first === undefined) return following.failure()
      return new Error(`an event of ${stream(first)} cannot be read: none of its pixels fires`)
    },
    doubtful: () => inDoubt.size,
  }
}

/** `heard`: the highest revision the subscription delivered while the rules were being read. */
type Loading = { heard: number; rules: Promise<LiveRules> }

/** Folds the next event in, readable or not; any other is none of these rules' business any more. */
const foldRecorded = (rules: LiveRules, recorded: RecordedEvent): void => {
  const { revision } = recorded
  if (revision !== rules.revision + 1) return
  const event = readable(recorded)
  applyPixelEvent(rules, event, { revision, effectiveAt: event?.metadata.effective_at ?? '' })
}

/** The event, if all of it can be relied on: what JSON holds is no proof that the members are there. */
const readable = (recorded: RecordedEvent): (DecodedEvent & PixelEvent) | null => {
  try {
    const event = decodeEvent(recorded)
    if (!isPixelEvent(event) || stream(event.data.organization_id) !== recorded.stream) return null
    checkEventData(event.type, currentVersion(event.type), event.data)
    return event
  } catch {
    return null
  }
}

/** A caller may try again: the same request makes the change once. */
const failUnknown = (error: unknown, name: string): void => {
  if (error instanceof UnknownOutcome)
    throw new Unavailable(`it is not known whether ${name} was written`, { cause: error })
}
