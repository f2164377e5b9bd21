import type { Logger } from 'pino'
import { chainedTo } from '../../event-log/append-chained.ts'
import { type AppendPatience, appendPatience, appendUntilKnown } from '../../event-log/append-until-known.ts'
import { AppendConflict, type EventLog, Unavailable, UnknownOutcome } from '../../event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../event-log/stored-event.ts'
import { pixelStream } from '../../events/streams.ts'
import {
  advance,
  openRulesMemory,
  type RulesMemory,
  rulesNow,
  rulesOf,
  unfollowedMemory,
} from './rules-memory.ts'
import {
  applyPixelEvent,
  changeOf,
  type LiveRules,
  type PixelRules,
  type RuleCommand,
} from './rules-state.ts'

/**
 * The pixel rules of the organizations this process knows, in memory, fed by the event log: judging a hit asks
 * no other process. A change made here is effective when it is answered; in other processes, when the subscription delivers it.
 */
export type PixelRulesModel = {
  /** The current rules. Rejects with `Unavailable` if they are not known yet and cannot be read from the log. */
  of(organizationId: string): PixelRules | Promise<PixelRules>
  /**
   * Executes a command, and resolves with the rules after it. Nothing is recorded if nothing would change. Commands of
   * one organization run one after the other; a change by another process is detected by the revision, and the command is judged
   * again. Throws `Unavailable`; then the same command can simply be sent again.
   */
  change(organizationId: string, command: RuleCommand, cause: Cause): Promise<RuleChange>
  readonly caughtUp: Promise<void>
  /** Why changes made elsewhere may not arrive, or rules cannot be read; null while all is well. */
  failure(): Error | null
  /** Organizations with an event this release cannot read. Their rules are refused: the event may be a block. */
  doubtful(): number
  stop(): Promise<void>
}

/** Commands with the same `once` make one change, however often they are sent. `requestId`: the call that makes it, if any. */
export type Cause = {
  readonly actor: string
  readonly once: string
  readonly requestId?: string
  readonly atMs: number
}

type RuleChange = {
  readonly rules: PixelRules
  /** False: nothing needed to change, or the change was impossible. */
  readonly changed: boolean
  readonly tooMany: boolean
}

/** Every lost race means that another process changed the same organization's rules at that moment. */
const attemptsMax = 10
/** A caller waits this long for a change. Longer than the deadline of one append, so that an append with unknown outcome is sent again. */
const changePatience = { ...appendPatience, unknownMs: 8_000 }
/** Changes of one organization in this process that wait for each other. */
const changesWaitingMax = 100

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
  const memory = await openRulesMemory(eventLog, logger)
  const { following, inDoubt } = memory
  const queues = new Map<string, ChangeQueue>()
  return {
    of: (organizationId) => rulesOf(memory, organizationId),
    change: (organizationId, command, cause) =>
      inTurn(queues, organizationId, () => change(memory, { organizationId, command, cause, patience })),
    ...following,
    failure: () => {
      const [first] = inDoubt
      if (following.failure() !== null || first === undefined) return following.failure()
      return new Error(`an event of ${pixelStream(first)} cannot be read: none of its pixels fires`)
    },
    doubtful: () => inDoubt.size,
  }
}

/** `change` alone, for a process that judges no hits: it subscribes to nothing. */
export const changeRules = (
  eventLog: EventLog,
  patience: AppendPatience = changePatience,
): PixelRulesModel['change'] => {
  const memory = unfollowedMemory(eventLog)
  const queues = new Map<string, ChangeQueue>()
  return (organizationId, command, cause) =>
    inTurn(queues, organizationId, () => change(memory, { organizationId, command, cause, patience }))
}

/** Changes of one organization in this process: `waiting` includes the one under way. */
type ChangeQueue = { waiting: number; last: Promise<unknown> }

/** Runs a change when the earlier changes of the same organization are finished. */
const inTurn = async <Result>(
  queues: Map<string, ChangeQueue>,
  organizationId: string,
  run: () => Promise<Result>,
): Promise<Result> => {
  const queue = queues.get(organizationId) ?? { waiting: 0, last: Promise.resolve() }
  if (queue.waiting >= changesWaitingMax)
    throw new Unavailable(`${changesWaitingMax} changes of ${pixelStream(organizationId)} are waiting`)
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

type Change = {
  readonly organizationId: string
  readonly command: RuleCommand
  readonly cause: Cause
  readonly patience: AppendPatience
}

/** Judges the command by the current rules and appends its event; again if another process was faster. */
const change = async (
  memory: RulesMemory,
  { organizationId, command, cause, patience }: Change,
): Promise<RuleChange> => {
  const { actor, once, requestId, atMs } = cause
  const name = pixelStream(organizationId)
  const effectiveAt = new Date(atMs).toISOString()
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    // Read now, because the answer "nothing to change" must be true.
    const rules = await rulesNow(memory, organizationId)
    const event = changeOf(rules, organizationId, command)
    if (event === null || event === 'too_many')
      return { rules, changed: false, tooMany: event === 'too_many' }
    const id = eventIdOf(name, once, 0)
    const encoded = encodeEvent(event, { id, actor, effectiveAt, requestId })
    try {
      const expected = rules.revision === -1 ? 'none' : rules.revision
      const chained = chainedTo(rules.last, name, [encoded])
      const { revision } = await appendUntilKnown(memory.eventLog, name, expected, chained, patience)
      const foldInto = (into: LiveRules): void => {
        applyPixelEvent(into, event, { revision, effectiveAt })
        into.last = { ...encoded, ...chained[0], stream: name, revision }
      }
      advance(memory, organizationId, { revision, foldInto })
      // Meanwhile these may have been evicted for others.
      if (rules.revision < revision) foldInto(rules)
      return { rules, changed: true, tooMany: false }
    } catch (error) {
      failUnknown(error, name)
      if (!(error instanceof AppendConflict)) throw error
    }
  }
  throw new Unavailable(`${name} was changed by others ${attemptsMax} times in a row`)
}

/** A caller may try again: the same request makes the change once. */
const failUnknown = (error: unknown, name: string): void => {
  if (error instanceof UnknownOutcome)
    throw new Unavailable(`it is not known whether ${name} was written`, { cause: error })
}
