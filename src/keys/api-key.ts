import { composeToken, parseToken, publicIdLength } from './checked-token.ts'

/** A partner's API key, `enl_live_<id>_<secret><crc>` (`checked-token.ts`). */
export const apiKeyPrefix = 'enl_live_'
export const keyIdLength = publicIdLength

export const composeApiKey = (
  random: Uint8Array,
  givenId?: string,
): { apiKey: string; keyId: string; secret: string } => {
  const { token, id, secret } = composeToken(apiKeyPrefix, random, givenId)
  return { apiKey: token, keyId: id, secret }
}

/** Splits a well-formed key with a correct checksum. Returns null for any other text. Needs no look-up and no HMAC. */
export const parseApiKey = (text: string): { keyId: string; secret: string } | null => {
  const parsed = parseToken(apiKeyPrefix, text)
  return parsed === null ? null : { keyId: parsed.id, secret: parsed.secret }
}
