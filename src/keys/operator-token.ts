import { composeToken, parseToken } from './checked-token.ts'

/** A user's token for the command line, `enl_operator_<id>_<secret><crc>` (`checked-token.ts`). */
const prefix = 'enl_operator_'

/** `random` must have at least 128 bytes. */
export const composeOperatorToken = (
  random: Uint8Array,
): { token: string; tokenId: string; secret: string } => {
  const { token, id, secret } = composeToken(prefix, random)
  return { token, tokenId: id, secret }
}

/** Returns null for a text that is not an operator token. */
export const parseOperatorToken = (text: string): { tokenId: string; secret: string } | null => {
  const parsed = parseToken(prefix, text)
  return parsed === null ? null : { tokenId: parsed.id, secret: parsed.secret }
}
