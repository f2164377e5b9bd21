import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createSecrets, sameHmac, shortHmac } from '../../src/guard/secrets/secrets.ts'
import { randomCases } from '../support/exhaustive.ts'

test('the short HMAC is the HMAC-SHA-256 of node:crypto for every text, short and long', () => {
  const key = Buffer.from('0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0', 'hex')
  const hmac = shortHmac(key)
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 400 }), (text) => {
      expect(hmac(text)).toBe(createHmac('sha256', key).update(text).digest('base64url'))
    }),
    { seed: 1, numRuns: randomCases(2_000) },
  )
})

test('HMACs for one purpose do not reveal those for another, and another secret key gives another HMAC', () => {
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

describe('a sealed text', () => {
  const secrets = createSecrets('a secret of at least thirty-two characters')
  const sealer = secrets.sealer('a purpose')

  test('opens unchanged under the same purpose, context and secret key', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 300 }),
        fc.string({ unit: 'grapheme', maxLength: 60 }),
        (text, context) => {
          const sealed = sealer.seal(text, context)
          expect(sealed).toMatch(/^[A-Za-z0-9_-]+$/)
          expect(sealer.open(sealed, context)).toBe(text)
          // This simulates another process that started with the same secret.
          const again = createSecrets('a secret of at least thirty-two characters')
          expect(again.sealer('a purpose').open(sealed, context)).toBe(text)
        },
      ),
      { seed: 2, numRuns: randomCases(300) },
    )
  })

  test('is different every time, and reveals only its length', () => {
    const all = Array.from({ length: 100 }, () => sealer.seal('one text', 'a context'))
    expect(new Set(all).size).toBe(100)
    for (const sealed of all) {
      const bytes = Buffer.from(sealed, 'base64url')
      // The sealed bytes are a nonce, the text and a tag.
      expect(bytes).toHaveLength(12 + 'one text'.length + 16)
      expect(bytes.includes('text')).toBe(false)
    }
    expect(new Set(all.map((sealed) => sealed.slice(0, 16))).size).toBe(100)
  })

  test('does not open under another context, purpose or secret key', () => {
    const sealed = sealer.seal('one text', 'a context')
    const others = [
      sealer.open(sealed, 'another context'),
      sealer.open(sealed, ''),
      secrets.sealer('another purpose').open(sealed, 'a context'),
      createSecrets('another secret of at least thirty-two chars')
        .sealer('a purpose')
        .open(sealed, 'a context'),
    ]
    expect(others).toEqual([null, null, null, null])
    const withoutContext = sealer.seal('one text', '')
    expect([sealer.open(withoutContext, ''), sealer.open(withoutContext, 'a context')]).toEqual([
      'one text',
      null,
    ])
  })

  test('does not open with any bit changed, or any byte missing or added', () => {
    const sealed = sealer.seal('one text', 'a context')
    const bytes = Buffer.from(sealed, 'base64url')
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const changed = Buffer.from(bytes)
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      expect({ bit, text: sealer.open(changed.toString('base64url'), 'a context') }).toEqual({
        bit,
        text: null,
      })
    }
    for (let length = 0; length < bytes.length; length++)
      expect(sealer.open(bytes.subarray(0, length).toString('base64url'), 'a context')).toBeNull()
    expect(sealer.open(Buffer.concat([bytes, Buffer.of(0)]).toString('base64url'), 'a context')).toBeNull()
  })

  test('that was never sealed is not opened and throws nothing, for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        expect(sealer.open(text, 'a context')).toBeNull()
      }),
      { seed: 3, numRuns: randomCases(500) },
    )
  })
})
