import { evolveKey, type KeyEvent, type KeyState } from './key-state.ts'

export type KeyStream = {
  /** The revision of the last folded event, or −1 if there is none. */
  readonly revision: number
  /** Undefined if the stream contains no readable event that issues the key. */
  readonly state: KeyState | undefined
  /** Whether the stream contains a readable revocation, which no later event can undo. */
  readonly revoked: boolean
  /** Whether the key was revoked, or rotated without a grace period. Both take effect when they are read, regardless of any clock. */
  readonly ended: boolean
  /** The revision of the first unreadable event, which could be a revocation. */
  readonly unreadableAt: number | null
}

export const emptyKeyStream: KeyStream = {
  revision: -1,
  state: undefined,
  revoked: false,
  ended: false,
  unreadableAt: null,
}

/** Folds the next event. Null means an unreadable event, which makes the key doubtful. */
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
        ended: stream.ended || isEnd(event, effectiveAt),
      }

const isEnd = (event: KeyEvent, effectiveAt: string): boolean =>
  event.type === 'ApiKeyRevoked' ||
  (event.type === 'ApiKeyRotated' && Date.parse(event.data.grace_until) <= Date.parse(effectiveAt))

/** Whether the key may have been revoked by an unreadable event. A readable revocation settles the question. */
export const isInDoubt = ({ revoked, unreadableAt }: KeyStream): boolean => !revoked && unreadableAt !== null
