import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createSecrets, sameHmac, shortHmac } from '../../src/guard/secrets.ts'

test('the short HMAC is the HMAC-SHA-256 of node:crypto for every text, short and long', () => {
  const key = Buffer.from('0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0', 'hex')
  const hmac = shortHmac(key)
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 400 }), (text) => {
      expect(hmac(text)).toBe(createHmac('sha256', key).update(text).digest('base64url'))
    }),
    { seed: 1, numRuns: 2_000 },
  )
})

test('one purpose tells nothing about another, and another secret key gives another HMAC', () => {
  const [one, other] = [createSecrets('a'.repeat(32)), createSecrets('b'.repeat(32))]
  const all = [
    one.apiKeyHmac('8.8.8.8'),
    one.addressHmac('8.8.8.8'),
    other.apiKeyHmac('8.8.8.8'),
    other.addressHmac('8.8.8.8'),
  ]
  expect(new Set(all).size).toBe(4)
  for (const hmac of all) expect(hmac).toMatch(/^[A-Za-z0-9_-]{43}$/)
  expect(one.addressHmac('8.8.8.8')).toBe(createSecrets('a'.repeat(32)).addressHmac('8.8.8.8'))
})

test('HMACs compare by content', () => {
  expect(sameHmac('abc', 'abc')).toBe(true)
  expect(sameHmac('abc', 'abd')).toBe(false)
  expect(sameHmac('abc', 'abcd')).toBe(false)
})
