import type { CheckpointStream } from '../tree/checkpoint-stream.ts'
import { headOf, signerOf } from '../tree/signed-note.ts'
import type { ExpectedRoot } from './roots.ts'

/** A checkpoint that was kept outside, and what the log makes of it. */
export type OutsideCheckpoint = {
  readonly origin: string
  readonly size: number
  readonly root: string
  /**
   * `extended`: the log's tree begins with just these leaves. `begun_from`: the log is a copy whose tree begins with this very
   * checkpoint. `refuted`: neither, see the faults.
   */
  readonly verdict: 'extended' | 'begun_from' | 'refuted'
}

type Fault = { stream: string; revision: null; event_id: null; fault: string }

/** Throws `NoteFault` where the text is no checkpoint. `expected`: what the log has still to show; ask for the verdict then. */
export const outsideCheckpoint = (
  note: string,
  { keys, tree }: CheckpointStream,
  told: (fault: Fault) => void,
): { readonly expected: readonly ExpectedRoot[]; checkpoint(): OutsideCheckpoint } => {
  const { origin, size, root: bytes } = headOf(note)
  const root = bytes.toString('base64')
  let verdict: OutsideCheckpoint['verdict'] = 'refuted'
  const refuted = (why: string): void => {
    verdict = 'refuted'
    told({ stream: 'the checkpoint kept outside', revision: null, event_id: null, fault: why })
  }
  const expected: ExpectedRoot[] = []
  if (signerOf(note, origin, keys) === undefined) refuted('no key that this log announced has signed it')
  else if (origin === tree?.origin) {
    verdict = 'extended'
    expected.push({ size, root, position: null, refuted })
  } else if (tree !== null && tree.previousNote === note) verdict = 'begun_from'
  else
    refuted(
      `it is of the tree ${origin}, and this log's is ${tree?.origin ?? 'not begun'}. A copied log proves only that it begins with the ` +
        'last checkpoint of the log it was copied from: give that one, or verify this one against the old log',
    )
  return { expected, checkpoint: () => ({ origin, size, root, verdict }) }
}
