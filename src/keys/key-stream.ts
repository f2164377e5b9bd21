import { evolveKey, type KeyEvent, type KeyState } from './key-state.ts'

export type KeyStream = {
  /** The revision of the last folded event; −1: none. */
  readonly revision: number
  /** Undefined: the stream has no readable event that issues the key. */
  readonly state: KeyState | undefined
  /** Whether a readable event revokes the key. No later event can undo a revocation. */
  readonly revoked: boolean
  /** The revision of the first unreadable event, which may have ended the key. */
  readonly unreadableAt: number | null
}

export const emptyKeyStream: KeyStream = {
  revision: -1,
  state: undefined,
  revoked: false,
  unreadableAt: null,
}

/** Folds the next event. Null is an unreadable event, which counts as a revision and puts the key in doubt. */
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

/** Whether it is uncertain that the key still works. A revocation removes the doubt. */
export const isInDoubt = ({ revoked, unreadableAt }: KeyStream): boolean => !revoked && unreadableAt !== null
