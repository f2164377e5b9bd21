import { parseApiKey } from '../keys/api-key.ts'
import type { DirectoryKey, KeyDirectory } from './key-directory.ts'
import { type Secrets, sameHmac } from './secrets.ts'

/** Why a call is not let in. The partner is told only that the key is invalid or missing (Spec §5.4). */
export type AuthenticationFailure = 'missing' | 'malformed' | 'unknown' | 'wrong_secret' | 'ended'

/**
 * Headers that were verified before, with their key id, per directory: the check of a secret, though fast, is the
 * costliest part of letting a call in. Found by hash, so the time it takes tells nothing about a secret; the key's
 * state is asked anew each time.
 */
const verifiedIn = new WeakMap<KeyDirectory, Map<string, string>>()
const verifiedMax = 10_000

/**
 * The key behind an `x-api-key` header, or why there is none. Asks only memory. A header sent twice arrives joined by
 * a comma and so is malformed.
 */
export const authenticate = (
  header: string | string[] | undefined,
  { directory, secrets, nowMs }: { directory: KeyDirectory; secrets: Secrets; nowMs: number },
): DirectoryKey | AuthenticationFailure => {
  if (header === undefined || header === '') return 'missing'
  if (typeof header !== 'string') return 'malformed'
  const knownId = verifiedIn.get(directory)?.get(header)
  const known = knownId === undefined ? undefined : directory.get(knownId)
  const key = known ?? verify(header, directory, secrets)
  if (typeof key === 'string') return key
  return key.endsAtMs <= nowMs ? 'ended' : key
}

const verify = (
  header: string,
  directory: KeyDirectory,
  secrets: Secrets,
): DirectoryKey | AuthenticationFailure => {
  const parsed = parseApiKey(header)
  if (parsed === null) return 'malformed'
  const key = directory.get(parsed.keyId)
  if (key === undefined) return 'unknown'
  if (!sameHmac(secrets.apiKeyHmac(parsed.secret), key.secretHmac)) return 'wrong_secret'
  const verified = verifiedIn.get(directory) ?? new Map<string, string>()
  if (verified.size >= verifiedMax) verified.clear()
  verifiedIn.set(directory, verified.set(header, key.keyId))
  return key
}
