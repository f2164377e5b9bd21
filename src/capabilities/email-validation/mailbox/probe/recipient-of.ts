/** A recipient that does not exist at a domain. */

/** 20 letters and digits of 32 make 100 bits: no one has such a mailbox, and no one without the key can guess it. */
const localPartLength = 20
const localPartAlphabet = 'abcdefghijkmnpqrstuvwxyz23456789'
const periodMs = 7 * 86_400_000

/**
 * The same local part for a domain for seven days, in every process: a server that greylists accepts a recipient only at the
 * second attempt from the same client and sender. `hmac` gives base64url.
 */
export const createRecipientOf =
  ({ hmac, clock }: { hmac: (text: string) => string; clock: { now(): number } }) =>
  (domain: string): string => {
    const period = Math.floor(clock.now() / periodMs)
    const octets = Buffer.from(hmac(`${period} ${domain}`), 'base64url').subarray(0, localPartLength)
    // A letter first: some systems do not accept a digit at the beginning of a name.
    return [...octets].map((octet, i) => localPartAlphabet[octet % (i === 0 ? 16 : 32)]).join('')
  }
