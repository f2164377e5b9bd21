/** The codes of an authenticator app follow RFC 6238 exactly, with one step of clock skew in each direction. */
import { Secret, TOTP } from 'otpauth'
import { describe, expect, test } from 'vitest'
import { freshRecoveryCodes, hashesOf, placeOfCode } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret, stepOfCode, totpAddress } from '../../src/administration/users/totp.ts'

/** Base32 of "12345678901234567890", the secret in RFC 6238, Appendix B. */
const secret = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ'

describe('RFC 6238, Appendix B', () => {
  test.each([
    [59, '94287082'],
    [1_234_567_890, '89005924'],
    [20_000_000_000, '65353130'],
  ])('at %s seconds', (seconds, digits) => {
    const code = digits.slice(-6)
    const step = Math.floor(seconds / 30)
    expect(stepOfCode({ secret, code }, seconds * 1_000)).toBe(step)
    for (const [skewSeconds, taken] of [
      [-30, step],
      [30, step],
      [-60, null],
      [60, null],
    ] as const)
      expect(stepOfCode({ secret, code }, (seconds + skewSeconds) * 1_000)).toBe(taken)
  })
})

test('any other text is not a code', () => {
  for (const code of ['', '1234', '1234567', 'abcdef', '-94287', '9428\u0000', '４２８７０８'])
    expect(stepOfCode({ secret, code }, 59_000)).toBeNull()
})

test('a secret has 160 bits, is different every time, and can be read by an app', () => {
  const [one, other] = [freshTotpSecret(), freshTotpSecret()]
  expect(one).toMatch(/^[A-Z2-7]{32}$/)
  expect(one).not.toBe(other)
  const address = new URL(totpAddress({ secret: one, user: 'ada & co?' }))
  expect([address.protocol, address.host]).toEqual(['otpauth:', 'totp'])
  expect(decodeURIComponent(address.pathname)).toBe('/Enrichment ledger:ada & co?')
  expect(Object.fromEntries(address.searchParams)).toEqual({
    issuer: 'Enrichment ledger',
    secret: one,
    algorithm: 'SHA1',
    digits: '6',
    period: '30',
  })
  const app = new TOTP({ secret: Secret.fromBase32(one) })
  const nowMs = Date.UTC(2026, 11, 31, 23, 59, 59)
  expect(stepOfCode({ secret: one, code: app.generate({ timestamp: nowMs }) }, nowMs)).not.toBeNull()
})

test('there are ten recovery codes, all different, and each is found at its position in its own list', () => {
  const codes = freshRecoveryCodes()
  expect(new Set(codes).size).toBe(10)
  for (const code of codes) expect(code).toMatch(/^([A-Z2-7]{4}-){3}[A-Z2-7]{4}$/)
  const hashes = hashesOf(codes, 'one')
  expect(codes.map((code) => placeOfCode(code.replaceAll('-', ''), { hashes, codesId: 'one' }))).toEqual([
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
  ])
  expect(placeOfCode(codes[0] ?? '', { hashes, codesId: 'another' })).toBeNull()
})
