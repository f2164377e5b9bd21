import { crc32 } from 'node:zlib'

/**
 * The text form of keys and tokens that people copy: `<prefix><id>_<secret><crc>`. The id (16 base62 characters) is public. The secret (32
 * characters, at least 190 random bits) is shown once and stored only as an HMAC. The checksum (6 characters, the base62 CRC-32 of everything
 * before it) detects typing errors and guesses without a look-up.
 */
export const publicIdLength = 16
const secretLength = 32
const crcLength = 6

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

/** Converts random bytes to base62. Skips bytes from 248 on, which would bias the result. If too many are skipped, the text is too short. */
const base62From = (bytes: Uint8Array, length: number): string => {
  let text = ''
  for (const byte of bytes) {
    if (text.length === length) break
    if (byte < 248) text += base62[byte % 62]
  }
  return text
}

/** Composes a token from at least 128 random bytes. `givenId` replaces the random id. Throws if there are too few bytes. */
export const composeToken = (
  prefix: string,
  random: Uint8Array,
  givenId?: string,
): { token: string; id: string; secret: string } => {
  const text = base62From(random, publicIdLength + secretLength)
  if (text.length < publicIdLength + secretLength)
    throw new Error(`not enough random bytes for a token that begins with ${prefix}`)
  const [id, secret] = [givenId ?? text.slice(0, publicIdLength), text.slice(publicIdLength)]
  const body = `${prefix}${id}_${secret}`
  return { token: body + checksum(body), id, secret }
}

const afterPrefix = /^[0-9A-Za-z]{16}_[0-9A-Za-z]{38}$/

/** Splits a well-formed token with a correct checksum. Returns null for any other text. */
export const parseToken = (prefix: string, text: string): { id: string; secret: string } | null => {
  if (!text.startsWith(prefix) || !afterPrefix.test(text.slice(prefix.length))) return null
  const secretAt = prefix.length + publicIdLength + 1
  const body = text.slice(0, -crcLength)
  if (checksum(body) !== text.slice(-crcLength)) return null
  return { id: text.slice(prefix.length, secretAt - 1), secret: text.slice(secretAt, -crcLength) }
}
