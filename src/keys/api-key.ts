import { crc32 } from 'node:zlib'

/**
 * The text of an API key: `enl_live_<id>_<secret><crc>`. The id (16 base62 characters) is public; the secret (32, at
 * least 190 random bits) is shown once and stored only as an HMAC; the checksum (6, base62 of the CRC-32 of all that
 * comes before it) answers a mistyped key, or a scanner, without any look-up.
 */
export const apiKeyPrefix = 'enl_live_'
export const keyIdLength = 16
export const secretLength = 32
const crcLength = 6
export const apiKeyLength = apiKeyPrefix.length + keyIdLength + 1 + secretLength + crcLength

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

const checksum = (body: string): string => {
  let rest = crc32(body)
  let text = ''
  for (let i = 0; i < crcLength; i++) {
    text = (base62[rest % 62] ?? '0') + text
    rest = Math.floor(rest / 62)
  }
  return text
}

/**
 * Base62 text from random bytes, without bias: bytes of 248 and above are skipped. Returns fewer characters than
 * asked when the bytes run out; callers pass twice as many as characters.
 */
const base62From = (bytes: Uint8Array, length: number): string => {
  let text = ''
  for (const byte of bytes) {
    if (text.length === length) break
    if (byte < 248) text += base62[byte % 62]
  }
  return text
}

/**
 * Composes a key from randomness (at least 128 bytes); its id, which is public, from `named` where that is given (32
 * bytes of a keyed hash). Throws when the bytes do not suffice.
 */
export const composeApiKey = (
  random: Uint8Array,
  named?: Uint8Array,
): { apiKey: string; keyId: string; secret: string } => {
  const text = base62From(random, keyIdLength + secretLength)
  const keyId = named === undefined ? text.slice(0, keyIdLength) : base62From(named, keyIdLength)
  if (text.length < keyIdLength + secretLength || keyId.length < keyIdLength)
    throw new Error('not enough random bytes for an API key')
  const secret = text.slice(keyIdLength)
  const body = `${apiKeyPrefix}${keyId}_${secret}`
  return { apiKey: body + checksum(body), keyId, secret }
}

const shape = /^enl_live_[0-9A-Za-z]{16}_[0-9A-Za-z]{38}$/

/** Splits a well-formed key with a correct checksum; null for anything else, at no look-up and no HMAC. */
export const parseApiKey = (text: string): { keyId: string; secret: string } | null => {
  if (!shape.test(text)) return null
  const secretAt = apiKeyPrefix.length + keyIdLength + 1
  const body = text.slice(0, -crcLength)
  if (checksum(body) !== text.slice(-crcLength)) return null
  return { keyId: text.slice(apiKeyPrefix.length, secretAt - 1), secret: text.slice(secretAt, -crcLength) }
}
