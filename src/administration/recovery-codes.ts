import { createHash, randomBytes } from 'node:crypto'
import { recoveryCodesCount } from '../events/second-factors.ts'

/** Codes for the day on which the authenticator is lost: each has 80 random bits, and opens once. */

/** RFC 4648: no letter looks like a digit of it. */
const base32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const codeLength = 16

/** As they are typed, in groups of four. */
export const freshRecoveryCodes = (): string[] =>
  Array.from({ length: recoveryCodesCount }, () =>
    [...randomBytes(codeLength)]
      .map((byte) => base32[byte % base32.length])
      .join('')
      .replaceAll(/(.{4})(?=.)/g, '$1-'),
  )

const hashOf = (code: string, codesId: string): string =>
  createHash('sha256')
    .update(`${codesId}\n${code.replaceAll('-', '')}`)
    .digest('base64url')

/** What is kept of them. */
export const hashesOf = (codes: readonly string[], codesId: string): string =>
  codes.map((code) => hashOf(code, codesId)).join(' ')

/** The place of a code in its list, from 1; null: it is none of them. `typed` has no spaces, no hyphens and capital letters. */
export const placeOfCode = (typed: string, { hashes, codesId }: { hashes: string; codesId: string }) => {
  const place = hashes.split(' ').indexOf(hashOf(typed, codesId))
  return place === -1 ? null : place + 1
}

export const isRecoveryCode = (typed: string): boolean => /^[A-Z2-7]{16}$/.test(typed)
