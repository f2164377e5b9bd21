import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import { type Following, follow } from '../../event-log/follow.ts'
import { type EventLog, type RecordedEvent, StreamMissing, Unavailable } from '../../event-log/port.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { checkEventData, currentVersion } from '../../events/catalogue.ts'
import { organizationId as organizationIdSchema } from '../../events/primitives.ts'
import { pixelStream } from '../../events/streams.ts'
import { applyPixelEvent, emptyRules, isPixelEvent, type LiveRules, type PixelEvent } from './rules-state.ts'

/**
 * The rules this process has read, and the subscription that keeps them current. An organization's rules are read from
 * its stream when they are first needed, and followed from then on. Reading all rules at start would mean reading
 * the whole log, however old, for partners who never call.
 */
export type RulesMemory = ReadRules & {
  readonly eventLog: EventLog
  readonly following: Pick<Following, 'failure'>
}

type ReadRules = {
  readonly known: LRUCache<string, LiveRules>
  readonly loading: Map<string, Loading>
  /** Organizations with an event that cannot be read. */
  readonly inDoubt: Set<string>
}

/** `heard`: the highest revision the subscription delivered while the rules were being read. */
type Loading = { heard: number; rules: Promise<LiveRules> }

/** Rules in memory, of all organizations together; an organization counts as one more. About 200 MB at most. */
const rulesHeldMax = 1_000_000
const rulesUnfollowedMax = 50_000
/** Events per read. */
const pageMax = 1_000

const stream = pixelStream
const organizationOf = (name: string): string => name.slice(stream('').length)

const nothingRead = (rulesMax: number): ReadRules => ({
  known: new LRUCache({ maxSize: rulesMax, sizeCalculation: ({ count }) => 1 + count }),
  loading: new Map(),
  inDoubt: new Set(),
})

/** For `rulesNow` alone, which reads the stream from the known revision: nothing is subscribed to. */
export const unfollowedMemory = (eventLog: EventLog): RulesMemory => ({
  ...nothingRead(rulesUnfollowedMax),
  eventLog,
  following: { failure: () => null },
})

/** Subscribes from the end of the log; no rules are read yet. */
export const openRulesMemory = async (
  eventLog: EventLog,
  logger: Logger,
): Promise<RulesMemory & { readonly following: Following }> => {
  const read = nothingRead(rulesHeldMax)
  // Asked before any stream is read: events recorded in between may be delivered twice, but are never missed.
  const following = follow({
    eventLog,
    after: await eventLog.head(),
    prefixes: [stream('')],
    logger,
    apply: ({ recorded }) => hear(read, recorded),
    unreadable: (recorded) => {
      hear(read, recorded)
      const organizationId = organizationOf(recorded.stream)
      // On a shared log, a stream of other software belongs to no organization.
      if (organizationIdSchema.safeParse(organizationId).success) read.inDoubt.add(organizationId)
    },
  })
  return { ...read, eventLog, following }
}

/** The rules as last delivered: read now if they are not known, or if the subscription is lost. */
export const rulesOf = (memory: RulesMemory, organizationId: string): LiveRules | Promise<LiveRules> => {
  const { known, loading, following } = memory
  const rules = known.get(organizationId)
  if (rules !== undefined) {
    if (rules.unreadableAt === null && following.failure() === null) return rules
    // Without the subscription the known rules may be out of date, and a block that was set must hold.
    return readFurther(memory, organizationId, rules)
  }
  const under = loading.get(organizationId)
  if (under !== undefined) return under.rules
  const own: Loading = { heard: -1, rules: Promise.resolve(emptyRules()) }
  loading.set(organizationId, own)
  own.rules = load(memory, organizationId, own).finally(() => loading.delete(organizationId))
  return own.rules
}

/** The rules with every event that is in the stream now: the subscription may be a moment behind. */
export const rulesNow = async (memory: RulesMemory, organizationId: string): Promise<LiveRules> =>
  readFurther(memory, organizationId, await rulesOf(memory, organizationId))

/**
 * Applies one event to the known rules, in order and once: an event that comes again is ignored, and an event that leaves a gap
 * makes this process read the stream again.
 */
export const advance = (
  { known }: Pick<ReadRules, 'known'>,
  organizationId: string,
  { revision, foldInto }: { revision: number; foldInto: (rules: LiveRules) => void },
): void => {
  const rules = known.peek(organizationId)
  if (rules === undefined || revision <= rules.revision) return
  if (revision > rules.revision + 1) return void known.delete(organizationId)
  foldInto(rules)
  // Set again, because its size changed.
  known.set(organizationId, rules)
}

const hear = (read: ReadRules, recorded: RecordedEvent): void => {
  const { stream: name, revision } = recorded
  const organizationId = organizationOf(name)
  const load = read.loading.get(organizationId)
  if (load !== undefined) load.heard = Math.max(load.heard, revision)
  advance(read, organizationId, { revision, foldInto: (rules) => foldRecorded(rules, recorded) })
}

const load = async (memory: RulesMemory, organizationId: string, own: Loading): Promise<LiveRules> => {
  const rules = emptyRules()
  // Repeat for events recorded after the read and delivered before these rules could receive them. Ends: it only reads forward.
  do await catchUp(memory.eventLog, organizationId, rules)
  while (own.heard > rules.revision)
  memory.known.set(organizationId, rules)
  return certain(memory, organizationId, rules)
}

const readFurther = async (
  memory: RulesMemory,
  organizationId: string,
  rules: LiveRules,
): Promise<LiveRules> => {
  await catchUp(memory.eventLog, organizationId, rules)
  return certain(memory, organizationId, rules)
}

/** Reads the events of the stream after these rules. */
const catchUp = async (eventLog: EventLog, organizationId: string, rules: LiveRules): Promise<void> => {
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

/** The rules, if all of their events can be read: an unreadable event may be a block. */
const certain = ({ inDoubt }: ReadRules, organizationId: string, rules: LiveRules): LiveRules => {
  if (rules.unreadableAt === null) return rules
  inDoubt.add(organizationId)
  throw new Unavailable(`${stream(organizationId)} cannot be read at revision ${rules.unreadableAt}`)
}

/** Folds the next event in, readable or not. Any other event is known already, or too early. */
const foldRecorded = (rules: LiveRules, recorded: RecordedEvent): void => {
  const { revision } = recorded
  if (revision !== rules.revision + 1) return
  const event = readable(recorded)
  applyPixelEvent(rules, event, { revision, effectiveAt: event?.metadata.effective_at ?? '' })
  rules.last = recorded
}

/** The event, if it is complete: a JSON text may lack members. */
export const readable = (recorded: RecordedEvent): (DecodedEvent & PixelEvent) | null => {
  try {
    const event = decodeEvent(recorded)
    if (!isPixelEvent(event) || stream(event.data.organization_id) !== recorded.stream) return null
    checkEventData(event.type, currentVersion(event.type), event.data)
    return event
  } catch {
    return null
  }
}
