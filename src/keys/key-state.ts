import type { Permission } from '../events/capabilities.ts'
import type { DomainEvent, DomainEventOf } from '../events/catalogue.ts'
import type { KeyLimits } from '../events/keys.ts'

/** The current state of an API key, folded from its stream. */
export type KeyState = {
  readonly keyId: string
  readonly organizationId: string
  readonly organizationName: string
  readonly name: string
  readonly secretHmac: string
  readonly last4: string
  readonly permissions: readonly Permission[]
  readonly limits: KeyLimits
  readonly allowedCidrs: readonly string[]
  readonly createdAt: string
  readonly expiresAt: string | null
  readonly successorId: string | null
  /** For a rotated key: the time until which it still works. */
  readonly graceUntil: string | null
  readonly revokedAt: string | null
}

export type KeyEvent = DomainEventOf<
  'ApiKeyIssued' | 'ApiKeyRotated' | 'ApiKeyLimitsChanged' | 'ApiKeyRevoked'
>

export const isKeyEvent = (event: DomainEvent): event is KeyEvent => event.type.startsWith('ApiKey')

/**
 * Folds one event of a key's stream. The state is undefined until the key is issued. A repeated rotation or revocation can shorten the life of
 * the key, but never extend it.
 */
export const evolveKey = (
  state: KeyState | undefined,
  event: KeyEvent,
  effectiveAt: string,
): KeyState | undefined => {
  if (event.type === 'ApiKeyIssued') return state ?? issued(event.data, effectiveAt)
  if (state === undefined) return undefined
  switch (event.type) {
    case 'ApiKeyRotated':
      return {
        ...state,
        successorId: state.successorId ?? event.data.successor_id,
        graceUntil: earlier(state.graceUntil, event.data.grace_until),
      }
    case 'ApiKeyLimitsChanged':
      return { ...state, limits: event.data.limits }
    case 'ApiKeyRevoked':
      return { ...state, revokedAt: state.revokedAt ?? effectiveAt }
  }
}

const earlier = (known: string | null, told: string): string =>
  known !== null && Date.parse(known) <= Date.parse(told) ? known : told

const issued = (data: KeyEventData<'ApiKeyIssued'>, effectiveAt: string): KeyState => ({
  keyId: data.key_id,
  organizationId: data.organization_id,
  organizationName: data.organization_name,
  name: data.name,
  secretHmac: data.secret_hmac,
  last4: data.last4,
  permissions: data.permissions,
  limits: data.limits,
  allowedCidrs: data.allowed_cidrs,
  createdAt: effectiveAt,
  expiresAt: data.expires_at,
  successorId: null,
  graceUntil: null,
  revokedAt: null,
})

type KeyEventData<T extends KeyEvent['type']> = DomainEventOf<T>['data']

/** Returns the time at which the key stops working, in Unix milliseconds, or Infinity if it never does. */
export const endsAtMs = (key: KeyState): number => {
  const ends = [key.expiresAt, key.graceUntil, key.revokedAt].flatMap((at) =>
    at === null ? [] : [Date.parse(at)],
  )
  return Math.min(Number.POSITIVE_INFINITY, ...ends)
}

/** The reason why the key's state does not allow an operation. */
export type KeyRefusal = { refused: string }

/** Limits grace periods, because they are for changing to a new key, not for using two keys. */
export const graceDaysMax = 90
const graceMsMax = graceDaysMax * 86_400_000

/** Gives an active key a successor. The old key works until `graceUntil`. Refuses a key that has expired, or was revoked or rotated. */
export const rotateKey = (
  key: KeyState,
  { successorId, graceUntil, at }: { successorId: string; graceUntil: string; at: string },
): KeyEvent | KeyRefusal => {
  if (key.successorId !== null)
    return { refused: `key ${key.keyId} was already rotated to ${key.successorId}` }
  if (Date.parse(graceUntil) - Date.parse(at) > graceMsMax)
    return { refused: `a rotated key can work for at most ${graceDaysMax} more days` }
  if (endsAtMs(key) <= Date.parse(at)) return { refused: `key ${key.keyId} was revoked or has expired` }
  return {
    type: 'ApiKeyRotated',
    data: { key_id: key.keyId, successor_id: successorId, grace_until: graceUntil },
  }
}

/** Gives a revoked key a successor, unless it has one. The caller must issue the successor. */
export const replaceRevokedKey = (key: KeyState, successorId: string): KeyEvent | KeyRefusal => {
  if (key.revokedAt === null) return { refused: `key ${key.keyId} is not revoked` }
  if (key.successorId !== null)
    return { refused: `key ${key.keyId} was already rotated to ${key.successorId}` }
  return {
    type: 'ApiKeyRotated',
    data: { key_id: key.keyId, successor_id: successorId, grace_until: key.revokedAt },
  }
}

/** Revokes a key. Refuses a key that is already revoked. */
export const revokeKey = (key: KeyState, reason: string): KeyEvent | KeyRefusal =>
  key.revokedAt === null
    ? { type: 'ApiKeyRevoked', data: { key_id: key.keyId, reason } }
    : { refused: `key ${key.keyId} was already revoked at ${key.revokedAt}` }
