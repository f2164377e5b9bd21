import { composeToken, parseToken } from './checked-token.ts'

/** A test key, `enl_test_<id>_<secret><crc>`. Its calls are free and return made-up data (`call/rehearsal.ts`). */
export const testKeyPrefix = 'enl_test_'

export const composeTestKey = (
  random: Uint8Array,
  givenId?: string,
): { apiKey: string; keyId: string; secret: string } => {
  const { token, id, secret } = composeToken(testKeyPrefix, random, givenId)
  return { apiKey: token, keyId: id, secret }
}

/** Splits a well-formed test key with a correct checksum. Returns null for any other text. */
export const parseTestKey = (text: string): { keyId: string; secret: string } | null => {
  const parsed = parseToken(testKeyPrefix, text)
  return parsed === null ? null : { keyId: parsed.id, secret: parsed.secret }
}
