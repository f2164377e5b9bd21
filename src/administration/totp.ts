import { Secret, TOTP } from 'otpauth'

/** Codes that an authenticator app shows (RFC 6238): SHA-1, six digits, thirty seconds, which every app knows. */

const stepSeconds = 30
const codeDigits = 6
/** One step of clock skew either way (RFC 6238 §5.2). */
const skewSteps = 1
/** RFC 4226 §4, R6: 160 bits. */
const secretBytes = 20

const algorithm = 'SHA1'

/** Base32, as apps take it. */
export const freshTotpSecret = (): string => new Secret({ size: secretBytes }).base32

/** What an app reads from the picture. */
export const totpAddress = ({ secret, user }: { secret: string; user: string }): string =>
  new TOTP({
    issuer: 'Enrichment ledger',
    label: user,
    secret: Secret.fromBase32(secret),
    algorithm,
    digits: codeDigits,
    period: stepSeconds,
  }).toString()

/** The step, counted from 1970, whose code this is; null: it is the code of none that counts now. */
export const stepOfCode = (
  { secret, code }: { secret: string; code: string },
  nowMs: number,
): number | null => {
  // The library throws for letters that take more than one byte.
  if (!/^\d{6}$/.test(code)) return null
  const delta = TOTP.validate({
    token: code,
    secret: Secret.fromBase32(secret),
    algorithm,
    digits: codeDigits,
    period: stepSeconds,
    timestamp: nowMs,
    window: skewSteps,
  })
  return delta === null ? null : Math.floor(nowMs / 1_000 / stepSeconds) + delta
}
