import { genesisDigest, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * The hash chain of one stream, for the events of a page. It proves that these events follow each other unchanged. The signed
 * checkpoints prove that the end was not cut off and that the chain was not rewritten as a whole. Pure.
 */

/** How an event is chained to the event before it. */
export type ChainLink = {
  readonly revision: number
  /** `unjudged`: the event before it is not known. */
  readonly state: 'holds' | 'broken' | 'unjudged'
  /** The fault; null if there is none. */
  readonly why: string | null
  /** The digest it carries; null if it has none. */
  readonly carried: string | null
  /** The digest of its bytes after the digest of the event before it; null if that is not known. */
  readonly computed: string | null
}

/**
 * One link for each event, in their order. `events` are of one stream with rising revisions; `before` is the event before the first of
 * them, null if it could not be read.
 */
export const chainLinks = (
  events: readonly RecordedEvent[],
  before: RecordedEvent | null,
): readonly ChainLink[] =>
  events.map((event, i) => {
    const previous = i === 0 ? before : (events[i - 1] ?? null)
    return linkOf(event, previous)
  })

const linkOf = (event: RecordedEvent, previous: RecordedEvent | null): ChainLink => {
  const { stream, revision } = event
  const begins = revision === 0
  if (!begins && previous === null) {
    const { carried } = recompute(event, { stream, revision, previous: genesisDigest })
    const why = 'the event before it could not be read'
    return { revision, state: 'unjudged', why, carried, computed: null }
  }
  const before = begins || previous === null ? genesisDigest : digestOf(previous)
  const { carried, computed } = recompute(event, { stream, revision, previous: before })
  const link = { revision, carried, computed }
  const expected = previous === null || begins ? revision : previous.revision + 1
  if (revision !== expected)
    return { ...link, state: 'broken', why: `revision ${expected} is missing before it` }
  if (carried === null) return { ...link, state: 'broken', why: 'it carries no digest, and has to' }
  if (carried === computed) return { ...link, state: 'holds', why: null }
  const why = 'its bytes do not give the digest it carries: it, or the event before it, was changed'
  return { ...link, state: 'broken', why }
}

/** An event without a digest is broken itself. The event after it is compared with the digest of its bytes as the first of a chain. */
const digestOf = (event: RecordedEvent): string => {
  const { stream, revision } = event
  const { carried, computed } = recompute(event, { stream, revision, previous: genesisDigest })
  return carried ?? computed
}
