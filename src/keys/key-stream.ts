import { evolveKey, type KeyEvent, type KeyState } from './key-state.ts'

/** An API key's stream as far as it was folded: the state of the key, and whether it is certain. */
export type KeyStream = {
  /** The last event folded in; −1 before the first. */
  readonly revision: number
  /** Undefined: no event that was read issues the key. */
  readonly state: KeyState | undefined
  /** An event that was read revokes the key. No other event of the stream can undo that. */
  readonly revoked: boolean
  /** The first event that cannot be read. It may have ended the key. */
  readonly unreadableAt: number | null
}

export const emptyKeyStream: KeyStream = {
  revision: -1,
  state: undefined,
  revoked: false,
  unreadableAt: null,
}

/** Folds the next event. Null is an event that cannot be read: it counts as a revision and leaves the key in doubt. */
export const foldKeyStream = (
  stream: KeyStream,
  event: KeyEvent | null,
  { revision, effectiveAt }: { revision: number; effectiveAt: string },
): KeyStream =>
  event === null
    ? { ...stream, revision, unreadableAt: stream.unreadableAt ?? revision }
    : {
        ...stream,
        revision,
        state: evolveKey(stream.state, event, effectiveAt),
        revoked: stream.revoked || event.type === 'ApiKeyRevoked',
      }

/** It is unknown whether the key still works. A revocation settles that. */
export const isInDoubt = ({ revoked, unreadableAt }: KeyStream): boolean => !revoked && unreadableAt !== null
