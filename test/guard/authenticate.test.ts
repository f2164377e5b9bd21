/** The service distinguishes the reasons for a failed authentication, but the caller always gets one answer. */
import { describe, expect, test } from 'vitest'
import { type AuthenticationFailure, authenticate } from '../../src/guard/authenticate.ts'
import type { DirectoryKey, KeyDirectory } from '../../src/guard/key-directory.ts'
import { createSecrets, sameHmac } from '../../src/guard/secrets/secrets.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'

const random = seededRandom(5)
const compose = () => composeApiKey(Uint8Array.from({ length: 128 }, () => random.integer(256)))
const secrets = createSecrets('a secret of at least thirty-two characters')
const nowMs = Date.UTC(2026, 8, 14)

const issue = (endsAtMs = Number.POSITIVE_INFINITY): { apiKey: string; key: DirectoryKey } => {
  const { apiKey, keyId, secret } = compose()
  return {
    apiKey,
    key: {
      keyId,
      organizationId: 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
      organizationName: 'Acme',
      name: 'production',
      secretHmac: secrets.apiKeyHmac(secret),
      last4: apiKey.slice(-4),
      permissions: [],
      limits: { requests_per_minute: 1, requests_per_day: 1, email_validations_per_second: 10 },
      allowedCidrs: [],
      createdAt: '2026-09-01T00:00:00.000Z',
      expiresAt: null,
      successorId: null,
      graceUntil: null,
      revokedAt: null,
      endsAtMs,
      allowed: null,
    },
  }
}

const directoryOf = (...keys: DirectoryKey[]): KeyDirectory => {
  const byId = new Map(keys.map((key) => [key.keyId, key]))
  return { get: (keyId) => byId.get(keyId), caughtUp: Promise.resolve(), stop: async () => undefined }
}

const { apiKey, key } = issue()
const other = issue()
const enter = (header: string | string[] | undefined, ...keys: DirectoryKey[]) =>
  authenticate(header, {
    directory: directoryOf(...(keys.length === 0 ? [key, other.key] : keys)),
    secrets,
    nowMs,
  })

test('a key is found by its own text', () => {
  expect(enter(apiKey)).toBe(key)
  expect(enter(other.apiKey)).toBe(other.key)
})

describe('refused', () => {
  test.each<[string, string | string[] | undefined, AuthenticationFailure]>([
    ['no header', undefined, 'missing'],
    ['an empty header', '', 'missing'],
    ['no key at all', 'open sesame', 'malformed'],
    ['a mistyped key', `${apiKey.slice(0, -1)}${apiKey.endsWith('0') ? '1' : '0'}`, 'malformed'],
    ['a key with a space around it', ` ${apiKey}`, 'malformed'],
    ['the header sent twice, joined', `${apiKey}, ${apiKey}`, 'malformed'],
    ['the header sent twice, as a list', [apiKey], 'malformed'],
    ['a well-formed key that was never issued', compose().apiKey, 'unknown'],
  ])('%s', (_, header, failure) => {
    expect(enter(header)).toBe(failure)
  })

  test('a known key id with a wrong secret', () => {
    const { apiKey: forged, keyId } = compose()
    expect(enter(forged, { ...key, keyId })).toBe('wrong_secret')
  })

  test('a key whose hash was made under another SECRET_KEY', () => {
    const elsewhere = createSecrets('another secret of at least thirty-two characters')
    expect(authenticate(apiKey, { directory: directoryOf(key), secrets: elsewhere, nowMs })).toBe(
      'wrong_secret',
    )
  })

  test('a key from the millisecond at which it ends', () => {
    for (const [endsAtMs, result] of [
      [nowMs + 1, 'let in'],
      [nowMs, 'ended'],
      [nowMs - 1, 'ended'],
    ] as const) {
      const ending = issue(endsAtMs)
      expect(enter(ending.apiKey, ending.key)).toBe(result === 'let in' ? ending.key : result)
    }
  })

  test('a key that was valid before, after it ended or was removed; and another secret with its id', () => {
    const wanted = compose()
    const forged = compose()
    const keys = new Map<string, DirectoryKey>()
    const directory: KeyDirectory = { ...directoryOf(), get: (keyId) => keys.get(keyId) }
    const knock = (header: string) => authenticate(header, { directory, secrets, nowMs })
    const live = { ...key, keyId: wanted.keyId, secretHmac: secrets.apiKeyHmac(wanted.secret) }
    keys.set(live.keyId, live)
    expect([knock(wanted.apiKey), knock(wanted.apiKey)]).toEqual([live, live])
    keys.set(forged.keyId, { ...live, keyId: forged.keyId })
    expect([knock(forged.apiKey), knock(forged.apiKey)]).toEqual(['wrong_secret', 'wrong_secret'])
    const changed = { ...live, name: 'changed since' }
    keys.set(live.keyId, changed)
    expect(knock(wanted.apiKey)).toBe(changed)
    keys.set(live.keyId, { ...live, endsAtMs: nowMs })
    expect(knock(wanted.apiKey)).toBe('ended')
    keys.delete(live.keyId)
    expect(knock(wanted.apiKey)).toBe('unknown')
  })

  test('the answer to a wrong secret of an ended key does not reveal that it ended', () => {
    const wanted = compose()
    expect(enter(wanted.apiKey, { ...key, keyId: wanted.keyId, endsAtMs: 0 })).toBe('wrong_secret')
  })
})

describe('keyed hashes', () => {
  test('depend on the key and the purpose, and fit the events that contain them', () => {
    const again = createSecrets('a secret of at least thirty-two characters')
    const elsewhere = createSecrets('another secret of at least thirty-two characters')
    expect(again.apiKeyHmac('x')).toBe(secrets.apiKeyHmac('x'))
    expect(secrets.addressHmac('x')).not.toBe(secrets.apiKeyHmac('x'))
    expect(elsewhere.apiKeyHmac('x')).not.toBe(secrets.apiKeyHmac('x'))
    expect(secrets.apiKeyHmac('x')).toMatch(/^[A-Za-z0-9_-]{43}$/)
  })

  test('are equal only for equal texts', () => {
    const hmac = secrets.apiKeyHmac('x')
    expect(sameHmac(hmac, hmac)).toBe(true)
    for (let at = 0; at < hmac.length; at++)
      expect(sameHmac(hmac, `${hmac.slice(0, at)}${hmac[at] === 'A' ? 'B' : 'A'}${hmac.slice(at + 1)}`)).toBe(
        false,
      )
    expect(sameHmac(hmac, hmac.slice(0, -1))).toBe(false)
    expect(sameHmac(hmac, '')).toBe(false)
  })
})
