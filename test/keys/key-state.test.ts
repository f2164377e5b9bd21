/** The life of an API key: its state according to its stream, and which changes are still possible. */
import { describe, expect, test } from 'vitest'
import type { ApiKeyIssued } from '../../src/events/keys.ts'
import {
  endsAtMs,
  evolveKey,
  isKeyEvent,
  type KeyEvent,
  type KeyState,
  revokeKey,
  rotateKey,
} from '../../src/keys/key-state.ts'

const keyId = 'Hq3Zk9Lw2Xc7Vb1N'
const successorId = 'A0b1C2d3E4f5G6h7'
const issuedData: ApiKeyIssued = {
  key_id: keyId,
  organization_id: 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
  organization_name: 'Acme',
  name: 'production',
  secret_hmac: 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA',
  last4: 'x7Qz',
  permissions: ['ip_lookup'],
  limits: { requests_per_minute: 600, requests_per_day: 100_000, email_validations_per_second: 10 },
  allowed_cidrs: ['203.0.113.0/24'],
  expires_at: null,
}
const issued = (own: Partial<ApiKeyIssued> = {}): KeyEvent => ({
  type: 'ApiKeyIssued',
  data: { ...issuedData, ...own },
})
const rotated = (graceUntil: string): KeyEvent => ({
  type: 'ApiKeyRotated',
  data: { key_id: keyId, successor_id: successorId, grace_until: graceUntil },
})
const revoked = (reason = 'leaked'): KeyEvent => ({ type: 'ApiKeyRevoked', data: { key_id: keyId, reason } })

const day = (n: number): string => `2026-09-${String(n).padStart(2, '0')}T00:00:00.000Z`

/** Folds events dated September 1, 2, 3 and so on. */
const fold = (...events: KeyEvent[]): KeyState | undefined =>
  events.reduce<KeyState | undefined>((state, event, n) => evolveKey(state, event, day(n + 1)), undefined)
const given = (...events: KeyEvent[]): KeyState => {
  const state = fold(...events)
  if (state === undefined) throw new Error('no key')
  return state
}

describe('folding', () => {
  const fresh: KeyState = {
    keyId,
    organizationId: 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
    organizationName: 'Acme',
    name: 'production',
    secretHmac: 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA',
    last4: 'x7Qz',
    permissions: ['ip_lookup'],
    limits: { requests_per_minute: 600, requests_per_day: 100_000, email_validations_per_second: 10 },
    allowedCidrs: ['203.0.113.0/24'],
    createdAt: day(1),
    expiresAt: null,
    successorId: null,
    graceUntil: null,
    revokedAt: null,
  }

  test('an issued key has the values of its event, and was created at the time of the event', () => {
    expect(fold(issued())).toEqual(fresh)
    expect(fold(issued({ expires_at: day(20) }))).toEqual({ ...fresh, expiresAt: day(20) })
  })

  test('a rotated key names its successor and its grace period', () => {
    expect(fold(issued(), rotated(day(9)))).toEqual({ ...fresh, successorId, graceUntil: day(9) })
  })

  test('changed limits replace both', () => {
    const limits = { requests_per_minute: 1, requests_per_day: 2, email_validations_per_second: 3 }
    const changed: KeyEvent = { type: 'ApiKeyLimitsChanged', data: { key_id: keyId, limits } }
    expect(fold(issued(), changed)).toEqual({ ...fresh, limits })
  })

  test('a key revoked twice was revoked at the first time', () => {
    expect(fold(issued(), revoked())).toEqual({ ...fresh, revokedAt: day(2) })
    expect(fold(issued(), revoked(), revoked('again'))).toEqual({ ...fresh, revokedAt: day(2) })
  })

  test('events of a key that was never issued create no key', () => {
    expect(fold(revoked(), rotated(day(9)))).toBeUndefined()
  })

  test('does not change the given state', () => {
    const state = Object.freeze(given(issued()))
    evolveKey(state, revoked(), day(2))
    evolveKey(state, rotated(day(9)), day(2))
    expect(state).toEqual(fresh)
  })

  test('events of keys are distinguished from all others', () => {
    expect([issued(), rotated(day(9)), revoked()].every(isKeyEvent)).toBe(true)
    expect(isKeyEvent({ type: 'CreditExpired', data: { grant_id: '', amount: '1' } })).toBe(false)
  })
})

describe('repeated events', () => {
  test('undo nothing: a key issued again stays revoked, and one rotated again does not end later', () => {
    expect(fold(issued(), revoked(), issued())).toMatchObject({ revokedAt: day(2) })
    expect(fold(issued(), rotated(day(9)), rotated(day(20)))).toMatchObject({ graceUntil: day(9) })
    expect(fold(issued(), rotated(day(20)), rotated(day(9)))).toMatchObject({ graceUntil: day(9) })
  })
})

describe('a grace period', () => {
  const graceUntil = (days: number): string => new Date(Date.parse(day(1)) + days * 86_400_000).toISOString()
  const rotatedFor = (days: number, ms = 0) =>
    rotateKey(given(issued()), {
      successorId,
      graceUntil: new Date(Date.parse(graceUntil(days)) + ms).toISOString(),
      at: day(1),
    })

  test('lasts 90 days at most', () => {
    expect(rotatedFor(90)).toMatchObject({ type: 'ApiKeyRotated' })
    expect(rotatedFor(90, 1)).toEqual({ refused: 'a rotated key can work for at most 90 more days' })
  })
})

describe('the end of a key', () => {
  const ends = (...events: KeyEvent[]): number => endsAtMs(given(...events))
  const ms = (n: number): number => Date.parse(day(n))

  test.each<[string, KeyEvent[], number]>([
    ['never', [issued()], Number.POSITIVE_INFINITY],
    ['its expiry', [issued({ expires_at: day(20) })], ms(20)],
    ['its grace after a rotation', [issued(), rotated(day(9))], ms(9)],
    [
      'its expiry, although the grace would last longer',
      [issued({ expires_at: day(5) }), rotated(day(9))],
      ms(5),
    ],
    ['its grace, although it would expire later', [issued({ expires_at: day(20) }), rotated(day(9))], ms(9)],
    ['its revocation', [issued({ expires_at: day(20) }), revoked()], ms(2)],
    ['its revocation within the grace', [issued(), rotated(day(9)), revoked()], ms(3)],
  ])('is %s', (_, events, endMs) => {
    expect(ends(...events)).toBe(endMs)
  })
})

describe('rotating', () => {
  const command = { successorId, graceUntil: day(9), at: day(8) }

  test('a live key gets a successor and a grace period', () => {
    expect(rotateKey(given(issued()), command)).toEqual(rotated(day(9)))
    expect(rotateKey(given(issued({ expires_at: '2026-09-08T00:00:00.001Z' })), command)).toEqual(
      rotated(day(9)),
    )
  })

  test.each<[string, KeyEvent[], RegExp]>([
    [
      'a rotated key, also within its grace',
      [issued(), rotated(day(20))],
      /already rotated to A0b1C2d3E4f5G6h7/,
    ],
    ['a revoked key', [issued(), revoked()], /was revoked or has expired/],
    ['a key that expires this very moment', [issued({ expires_at: day(8) })], /was revoked or has expired/],
    ['an expired key', [issued({ expires_at: day(7) })], /was revoked or has expired/],
  ])('%s is refused', (_, events, why) => {
    expect(rotateKey(given(...events), command)).toEqual({ refused: expect.stringMatching(why) })
  })
})

describe('revoking', () => {
  test.each<[string, KeyEvent[]]>([
    ['a live key', [issued()]],
    ['a rotated key, grace or not', [issued(), rotated(day(9))]],
    [
      'an expired key: an operator who revokes wants to be sure',
      [issued({ expires_at: '2020-01-01T00:00:00.000Z' })],
    ],
  ])('%s is revoked', (_, events) => {
    expect(revokeKey(given(...events), 'leaked')).toEqual(revoked())
  })

  test('a revoked key is refused, with the time of its revocation', () => {
    expect(revokeKey(given(issued(), revoked()), 'again')).toEqual({
      refused: `key ${keyId} was already revoked at ${day(2)}`,
    })
  })
})
