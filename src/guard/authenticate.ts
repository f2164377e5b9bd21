import { parseApiKey } from '../keys/api-key.ts'
import type { DirectoryKey, KeyDirectory } from './key-directory.ts'
import { type Secrets, sameHmac } from './secrets.ts'

/** Why a call is not let in. The partner is told only that the key is invalid or missing (Spec §5.4). */
export type AuthenticationFailure = 'missing' | 'malformed' | 'unknown' | 'wrong_secret' | 'ended'

/**
 * The key behind an `x-api-key` header, or why there is none. Asks only memory. A header sent twice arrives joined by
 * a comma and so is malformed.
 */
export const authenticate = (
  header: string | string[] | undefined,
  { directory, secrets, nowMs }: { directory: KeyDirectory; secrets: Secrets; nowMs: number },
): DirectoryKey | AuthenticationFailure => {
  if (header === undefined || header === '') return 'missing'
  const parsed = typeof header === 'string' ? parseApiKey(header) : null
  if (parsed === null) return 'malformed'
  const key = directory.get(parsed.keyId)
  if (key === undefined) return 'unknown'
  if (!sameHmac(secrets.apiKeyHmac(parsed.secret), key.secretHmac)) return 'wrong_secret'
  return key.endsAtMs <= nowMs ? 'ended' : key
}
