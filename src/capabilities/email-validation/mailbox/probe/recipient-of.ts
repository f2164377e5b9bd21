/** 20 characters from an alphabet of 32 are 100 bits, so such a mailbox does not exist and cannot be guessed without the key. */
const localPartLength = 20
const localPartAlphabet = 'abcdefghijkmnpqrstuvwxyz23456789'
const periodMs = 7 * 86_400_000

/**
 * Returns a non-existent local part for a domain. It is the same in every process for seven days, because a greylisting server accepts a
 * recipient only at the second attempt. `hmac` returns base64url.
 */
export const createRecipientOf =
  ({ hmac, clock }: { hmac: (text: string) => string; clock: { now(): number } }) =>
  (domain: string): string => {
    const period = Math.floor(clock.now() / periodMs)
    const octets = Buffer.from(hmac(`${period} ${domain}`), 'base64url').subarray(0, localPartLength)
    // The first character is a letter, because some systems reject a name that starts with a digit.
    return [...octets].map((octet, i) => localPartAlphabet[octet % (i === 0 ? 16 : 32)]).join('')
  }
