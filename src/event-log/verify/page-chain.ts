import { digestAfter, genesisDigest, mismatch, recompute } from '../hash-chain.ts'
import type { RecordedEvent } from '../port.ts'

/**
 * Checks an event of a page against the event before it in its stream. Together, the checks of a page prove that no event in it was changed, inserted
 * or removed. Only signed checkpoints prove that the end of the stream was not removed, and that the whole chain was not rewritten. Pure.
 */

export type ChainLink = {
  readonly revision: number
  /** `unjudged`: the digest cannot be checked, because the previous event is unknown. */
  readonly state: 'holds' | 'broken' | 'unjudged'
  readonly why: string | null
  /** The digest that the event contains, or null. */
  readonly carried: string | null
  /** The digest calculated from the event's bytes and the previous digest. Null: the previous digest is unknown. */
  readonly computed: string | null
}

/** Returns the link of an event. `before` is the event before it in its stream, or null if it could not be read. */
export const linkOf = (event: RecordedEvent, before: RecordedEvent | null): ChainLink => {
  const { revision } = event
  const previous = revision === 0 ? null : before
  const { carried, computed } = recompute(event, {
    ...event,
    previous: previous === null ? genesisDigest : digestAfter(previous),
  })
  if (revision > 0 && previous === null) {
    const why = 'the previous event could not be read'
    return { revision, state: 'unjudged', why, carried, computed: null }
  }
  const why =
    previous !== null && previous.revision !== revision - 1
      ? `revision ${previous.revision + 1} is missing before it`
      : chainFault(carried, computed)
  return { revision, state: why === null ? 'holds' : 'broken', why, carried, computed }
}

const chainFault = (carried: string | null, computed: string): string | null =>
  carried === null ? 'it has no digest, but must have one' : mismatch(carried, computed)
