/** Mistyped API keys are recognized without asking the database. */
import { crc32 } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { keyId as keyIdSchema } from '../../src/events/primitives.ts'
import { apiKeyPrefix, composeApiKey, keyIdLength, parseApiKey } from '../../src/keys/api-key.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

const random = seededRandom(62)
const bytes = (count = 128): Uint8Array => Uint8Array.from({ length: count }, () => random.integer(256))

/** A second implementation of the checksum, because scanners outside this service rely on the format. */
const checksumOf = (body: string): string => {
  let rest = BigInt(crc32(body))
  let text = ''
  while (text.length < 6) {
    text = base62.charAt(Number(rest % 62n)) + text
    rest /= 62n
  }
  return text
}

describe('a composed key', () => {
  test('consists of prefix, public id, secret and checksum, with the announced lengths', () => {
    const { apiKey, keyId, secret } = composeApiKey(bytes())
    expect(apiKey).toBe(`enl_live_${keyId}_${secret}${checksumOf(`enl_live_${keyId}_${secret}`)}`)
    expect(apiKey).toMatch(/^enl_live_[0-9A-Za-z]{16}_[0-9A-Za-z]{38}$/)
    expect([apiKey.length, keyId.length, secret.length]).toEqual([64, 16, 32])
    expect([keyIdLength, apiKeyPrefix]).toEqual([16, 'enl_live_'])
  })

  test('depends on its randomness alone', () => {
    const same = bytes()
    expect(composeApiKey(same)).toEqual(composeApiKey(Uint8Array.from(same)))
  })

  test('from known bytes is a known text: the format cannot change by accident', () => {
    const { apiKey } = composeApiKey(Uint8Array.from({ length: 128 }, (_, n) => n))
    expect(apiKey).toBe(
      `enl_live_0123456789ABCDEF_GHIJKLMNOPQRSTUVWXYZabcdefghijkl${checksumOf('enl_live_0123456789ABCDEF_GHIJKLMNOPQRSTUVWXYZabcdefghijkl')}`,
    )
  })

  test('2,000 keys: each can be parsed, and no id or secret occurs twice', () => {
    const ids = new Set<string>()
    const secrets = new Set<string>()
    for (let n = 0; n < 2_000; n++) {
      const { apiKey, keyId, secret } = composeApiKey(bytes())
      expect(parseApiKey(apiKey)).toEqual({ keyId, secret })
      expect(keyIdSchema.safeParse(keyId).success).toBe(true)
      ids.add(keyId)
      secrets.add(secret)
    }
    expect([ids.size, secrets.size]).toEqual([2_000, 2_000])
  })

  test('favours no character: bytes that would cause a bias are skipped', () => {
    const counts = new Map<string, number>()
    for (let n = 0; n < 5_000; n++) {
      const { keyId, secret } = composeApiKey(bytes())
      for (const character of keyId + secret) counts.set(character, (counts.get(character) ?? 0) + 1)
    }
    const expected = (5_000 * 48) / 62
    expect(counts.size).toBe(62)
    // If the generator did not skip some bytes, the first 8 characters would occur 1.24 times as often, which is 60 standard
    // deviations.
    for (const count of counts.values()) expect(Math.abs(count / expected - 1)).toBeLessThan(0.1)
    const skipped = composeApiKey(
      Uint8Array.from({ length: 128 }, (_, n) => (n % 2 === 0 ? 248 + (n % 8) : n >> 1)),
    )
    expect(skipped.keyId).toBe('0123456789ABCDEF')
  })

  test('cannot be made from too little randomness', () => {
    expect(() => composeApiKey(bytes(47))).toThrow('not enough random bytes')
    expect(() => composeApiKey(Uint8Array.from({ length: 128 }, () => 255))).toThrow(
      'not enough random bytes',
    )
  })
})

describe('refused without any look-up', () => {
  const { apiKey } = composeApiKey(bytes())

  test('every change of a single character', () => {
    const others = `${base62}_- \n\u0000é`
    for (let n = 0; n < 20; n++) {
      const { apiKey: key } = composeApiKey(bytes())
      for (let at = 0; at < key.length; at++)
        for (const other of others) {
          if (other === key[at]) continue
          const changed = key.slice(0, at) + other + key.slice(at + 1)
          if (parseApiKey(changed) !== null) throw new Error(`${changed} passes for ${key}`)
        }
    }
  })

  test('two adjacent characters swapped, one character too many or too few', () => {
    for (let at = 0; at < apiKey.length; at++) {
      const swapped = apiKey.slice(0, at) + (apiKey[at + 1] ?? '') + (apiKey[at] ?? '') + apiKey.slice(at + 2)
      if (swapped !== apiKey) expect(parseApiKey(swapped)).toBeNull()
      expect(parseApiKey(apiKey.slice(0, at) + apiKey.slice(at + 1))).toBeNull()
      expect(parseApiKey(`${apiKey.slice(0, at)}0${apiKey.slice(at)}`)).toBeNull()
    }
  })

  test.each([
    '',
    'enl_live_',
    'x'.repeat(64),
    ` ${apiKey}`,
    `${apiKey} `,
    `${apiKey}, ${apiKey}`,
    apiKey.toLowerCase(),
    apiKey.replace('enl_live_', 'enl_test_'),
    `Bearer ${apiKey}`,
    'é'.repeat(64),
  ])('%j', (text) => {
    expect(parseApiKey(text)).toBeNull()
  })

  test.each([
    ['another prefix', `enl_test_${'0'.repeat(16)}_${'a'.repeat(32)}`],
    ['another separator', `enl_live_${'0'.repeat(16)}-${'a'.repeat(32)}`],
    ['an id of other characters', `enl_live_${'0'.repeat(15)}\n_${'a'.repeat(32)}`],
    ['a secret of other characters', `enl_live_${'0'.repeat(16)}_${'a'.repeat(31)}%`],
  ])('%s, although the checksum is right', (_, body) => {
    expect(parseApiKey(body + checksumOf(body))).toBeNull()
  })
})
