import { Secret, TOTP } from 'otpauth'

/** Codes of an authenticator app (RFC 6238): SHA-1, six digits, thirty seconds, which every app supports. */

const stepSeconds = 30
const codeDigits = 6
/** A code is also valid one step early or late, because clocks differ (RFC 6238 §5.2). */
const skewSteps = 1
/** RFC 4226 §4, R6: 160 bits. */
const secretBytes = 20

const algorithm = 'SHA1'

/** A new secret in base32, the format that apps read. */
export const freshTotpSecret = (): string => new Secret({ size: secretBytes }).base32

/** The URL in the QR code. */
export const totpAddress = ({ secret, user }: { secret: string; user: string }): string =>
  new TOTP({
    issuer: 'Enrichment ledger',
    label: user,
    secret: Secret.fromBase32(secret),
    algorithm,
    digits: codeDigits,
    period: stepSeconds,
  }).toString()

/** The time step (counted from 1970) that this code belongs to; null if the code is not valid now. */
export const stepOfCode = (
  { secret, code }: { secret: string; code: string },
  nowMs: number,
): number | null => {
  // The library throws for characters of more than one byte.
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
