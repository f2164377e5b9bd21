import { LRUCache } from 'lru-cache'
import { createGathering } from '../../concurrency/gathering.ts'
import { appendChained } from '../../event-log/append-chained.ts'
import { type AppendPatience, appendPatience } from '../../event-log/append-until-known.ts'
import {
  AppendConflict,
  type EventLog,
  type RecordedEvent,
  Unavailable,
  UnknownOutcome,
} from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent, encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import { checkEventData, currentVersion } from '../../events/catalogue.ts'
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
 * The pixel rules of organizations. Known rules stay in memory, and each use reads newer events from the stream, so that a confirmed change
 * by any process applies to every later hit.
 */
export type PixelRulesModel = {
  /** Returns the current rules for display. Rejects with `Unavailable` if the log cannot be read. */
  read(organizationId: string): Promise<PixelRules>
  /**
   * Returns the current rules for decisions about hits. Also rejects if an event of the rules is unreadable, because the event may be a
   * block.
   */
  certain(organizationId: string): Promise<PixelRules>
  /**
   * Executes a command, and records nothing if nothing would change. Commands of one organization run one after the other. If another process
   * has changed the rules, a command is decided again. Throws `Unavailable`; the same command can then be sent again.
   */
  change(organizationId: string, command: RuleCommand, cause: Cause): Promise<RuleChange>
}

/**
 * Commands with the same `once` make one change, no matter how often they are sent. `requestId` is the call that makes the change, if any.
 */
export type Cause = {
  readonly actor: string
  readonly once: string
  readonly requestId?: string
  readonly atMs: number
}

type RuleChange = {
  readonly before: PixelRules
  /** False if nothing had to be changed, or the change was impossible. */
  readonly changed: boolean
  readonly tooMany: boolean
}

/** Another attempt is needed only if another process has changed the organization's rules during the previous attempt. */
const attemptsMax = 10
/** Longer than the deadline of one append, so that an append with an unknown outcome is sent again. */
const changePatience = { ...appendPatience, unknownMs: 8_000 }
/** The maximum number of waiting changes of one organization in this process. */
const changesWaitingMax = 100
/** The maximum number of rules of all organizations in memory, about 200 MB. Each organization counts as one additional rule. */
const rulesHeldMax = 1_000_000
/** The maximum number of callers whose reads run together. Callers of one organization share one read. */
const readsTogetherMax = 256
const readsUnderWayMax = 8
const readsWaitingMax = 10_000

export const createPixelRules = (
  eventLog: EventLog,
  patience: AppendPatience = changePatience,
): PixelRulesModel => {
  const known = new LRUCache<string, LiveRules>({
    maxSize: rulesHeldMax,
    sizeCalculation: ({ rules }) => 1 + rules.size,
  })
  const readFurther = async (organizationId: string): Promise<LiveRules> => {
    const live = known.get(organizationId) ?? emptyRules()
    await catchUp(eventLog, organizationId, live)
    known.set(organizationId, live)
    return live
  }
  // Each caller gets the result of a read that began after its request, so the result contains every change confirmed before the request.
  const reads = createGathering<string, LiveRules>({
    batchMax: readsTogetherMax,
    underWayMax: readsUnderWayMax,
    waitingMax: readsWaitingMax,
    refusal: () => new Unavailable('too many reads of pixel rules are waiting'),
    run: (take) => {
      const asked = take()
      const read = new Map([...new Set(asked)].map((id) => [id, readFurther(id)]))
      return Promise.all(asked.flatMap((id) => read.get(id) ?? []))
    },
  })
  const certain = async (organizationId: string): Promise<PixelRules> => {
    const rules = await reads.ask(organizationId)
    if (rules.unreadableAt === null) return rules
    throw new Unavailable(`${pixelStream(organizationId)} cannot be read at revision ${rules.unreadableAt}`)
  }
  const queues = new Map<string, ChangeQueue>()
  return {
    read: (organizationId) => reads.ask(organizationId),
    certain,
    change: (organizationId, command, cause) =>
      inTurn(queues, organizationId, () =>
        change({ eventLog, certain, patience }, { organizationId, command, cause }),
      ),
  }
}

const catchUp = async (eventLog: EventLog, organizationId: string, live: LiveRules): Promise<void> => {
  for await (const page of pagesOf(eventLog, pixelStream(organizationId), { from: live.revision + 1 }))
    for (const recorded of page) {
      const { revision } = recorded
      // Another read of these rules may already have applied this event.
      if (revision !== live.revision + 1) continue
      const event = readable(recorded)
      const { actor = '', effective_at: at = '' } = event?.metadata ?? {}
      applyPixelEvent(live, event, { revision, actor, at })
    }
}

/** Returns the event if it is complete, because JSON can lack members. */
const readable = (recorded: RecordedEvent): (DecodedEvent & PixelEvent) | null => {
  try {
    const event = decodeEvent(recorded)
    if (!isPixelEvent(event) || pixelStream(event.data.organization_id) !== recorded.stream) return null
    checkEventData(event.type, currentVersion(event.type), event.data)
    return event
  } catch {
    return null
  }
}

type ChangeQueue = { waiting: number; last: Promise<unknown> }

const inTurn = async <Result>(
  queues: Map<string, ChangeQueue>,
  organizationId: string,
  run: () => Promise<Result>,
): Promise<Result> => {
  const queue = queues.get(organizationId) ?? { waiting: 0, last: Promise.resolve() }
  if (queue.waiting >= changesWaitingMax)
    throw new Unavailable(`${changesWaitingMax} changes to ${pixelStream(organizationId)} are waiting`)
  queues.set(organizationId, queue)
  queue.waiting++
  const own = queue.last.then(run)
  queue.last = own.catch(() => undefined)
  try {
    return await own
  } finally {
    if (--queue.waiting === 0) queues.delete(organizationId)
  }
}

/** Decides the command by the current rules and appends its event. Tries again if another process has appended an event first. */
const change = async (
  {
    eventLog,
    certain,
    patience,
  }: { eventLog: EventLog; certain: PixelRulesModel['certain']; patience: AppendPatience },
  { organizationId, command, cause }: { organizationId: string; command: RuleCommand; cause: Cause },
): Promise<RuleChange> => {
  const { actor, once, requestId, atMs } = cause
  const name = pixelStream(organizationId)
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const before = await certain(organizationId)
    const event = changeOf(before, organizationId, command)
    if (event === null || event === 'too_many')
      return { before, changed: false, tooMany: event === 'too_many' }
    const metadata = {
      id: eventIdOf(name, once, 0),
      actor,
      effectiveAt: new Date(atMs).toISOString(),
      requestId,
    }
    const expected = before.revision === -1 ? 'none' : before.revision
    try {
      await appendChained(eventLog, name, expected, [encodeEvent(event, metadata)], patience)
      return { before, changed: true, tooMany: false }
    } catch (error) {
      if (error instanceof UnknownOutcome)
        throw new Unavailable(`it is not known whether ${name} was written`, { cause: error })
      if (!(error instanceof AppendConflict)) throw error
    }
  }
  throw new Unavailable(`${name} was changed by other processes ${attemptsMax} times in a row`)
}
