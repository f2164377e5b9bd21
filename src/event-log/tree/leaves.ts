import { isStreamOfOurs } from '../../events/streams.ts'
import { genesisDigest, recompute } from '../hash-chain.ts'
import { type EventLog, type LogPlace, logStart, type Position, type RecordedEvent } from '../port.ts'
import { readingAhead } from '../read-stream.ts'
import { hasEnvelope } from '../stored-event.ts'

/**
 * The leaves of the tree are the digests in the metadata of this service's events, in log order. If a digest was removed, the leaf is calculated
 * from the event as if it were the first of a chain, so the root differs.
 */

/** Metadata that matches this pattern was written by this service, and does not have to be parsed. */
const ownMetadata =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON contains no unescaped control characters.
  /^\{"schema_version":[1-9]\d{0,8}(?:,"request_id":"[^"\\\x00-\x1f]*")?(?:,"causation_id":"[^"\\\x00-\x1f]*")?(?:,"trace_id":"[^"\\\x00-\x1f]*")?,"actor":"[^"\\\x00-\x1f]*","effective_at":"[^"\\\x00-\x1f]*"(?:,"recorded_at":"[^"\\\x00-\x1f]*")?(?:,"digest":"[^"\\\x00-\x1f]*")?\}$/

/** Returns a function that checks whether this service wrote an event. The last stream is cached, because consecutive events often share it. */
export const createOwnership = (): ((event: RecordedEvent) => boolean) => {
  let stream = ''
  let ours = false
  return (event) => {
    if (event.stream !== stream) {
      stream = event.stream
      ours = isStreamOfOurs(stream)
    }
    return ours && (ownMetadata.test(event.metadata) || hasEnvelope(event))
  }
}

const digestMember = ',"digest":"'
const tailLength = digestMember.length + 43 + 2

/** The digest at the end of an event's metadata, or null. */
const carriedDigest = (metadata: string): string | null => {
  const at = metadata.length - tailLength
  return at > 0 && metadata.startsWith(digestMember, at) && metadata.endsWith('"}')
    ? metadata.slice(at + digestMember.length, -2)
    : null
}

/** The leaf of an event: 43 characters of base64url. */
export const leafDigestOf = (event: RecordedEvent): string =>
  carriedDigest(event.metadata) ?? recompute(event, { ...event, previous: genesisDigest }).computed

/** A page of this service's events, in log order. The log was read up to `position`. `all` also contains the events of others. */
type OwnEvents = {
  readonly events: readonly RecordedEvent[]
  readonly all: readonly RecordedEvent[]
  readonly position: Position
}

/**
 * Reads this service's events after a position, up to the current end of the log. The next page is fetched while the current page is processed.
 * Throws the errors of `subscribe`, such as `LogRewritten` if the log has lost `known`.
 */
export async function* ownEventsAfter(
  eventLog: Pick<EventLog, 'head' | 'subscribe'>,
  {
    after = logStart,
    known,
    batchMax = 1_000,
  }: { after?: Position; known?: LogPlace; batchMax?: number } = {},
): AsyncGenerator<OwnEvents> {
  const head = await eventLog.head()
  if (head <= after) return
  const isOurs = createOwnership()
  const done = new AbortController()
  const items = eventLog.subscribe({ after, known, prefixes: [], batchMax, signal: done.signal })
  for await (const item of readingAhead(items, done)) {
    const all = item.kind === 'events' ? item.events : []
    yield {
      events: all.filter((event) => event.position <= head && isOurs(event)),
      all,
      position: item.position,
    }
    if (item.position >= head) return
  }
  throw new Error('the event log ended the subscription')
}
