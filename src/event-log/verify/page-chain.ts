import { digestAfter, genesisDigest, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * Checks the hash chain of one stream for the events of a page. This proves that no event was changed, inserted or removed within
 * the page. Only signed checkpoints prove that the end of the stream was not removed and that the whole chain was not rewritten.
 * Pure.
 */

export type ChainLink = {
  readonly revision: number
  /** `unjudged`: the digest cannot be checked, because the previous event is unknown. */
  readonly state: 'holds' | 'broken' | 'unjudged'
  readonly why: string | null
  /** The digest that the event contains; null if there is none. */
  readonly carried: string | null
  /** The digest calculated from the event's bytes and the previous digest; null if the previous digest is unknown. */
  readonly computed: string | null
}

/**
 * Returns one link per event, in order. `events` belong to one stream and have rising revisions. `before` is the event before the
 * first one; null if it could not be read.
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
  const before = begins || previous === null ? genesisDigest : digestAfter(previous)
  const { carried, computed } = recompute(event, { stream, revision, previous: before })
  const link = { revision, carried, computed }
  const expected = previous === null || begins ? revision : previous.revision + 1
  if (revision !== expected)
    return { ...link, state: 'broken', why: `revision ${expected} is missing before it` }
  if (carried === null) return { ...link, state: 'broken', why: 'it has no digest, but must have one' }
  if (carried === computed) return { ...link, state: 'holds', why: null }
  const why = 'its bytes do not match its digest, so this event or the one before it was changed'
  return { ...link, state: 'broken', why }
}
