import { isTestOrganization } from '../events/test-organization.ts'
import { parseApiKey } from '../keys/api-key.ts'
import { parseTestKey } from '../keys/test-key.ts'
import type { DirectoryKey, FoundKey, KeyDirectory } from './key-directory.ts'
import { type Secrets, sameHmac } from './secrets/secrets.ts'

/** The reason why a call is not authenticated. The answer says only that the key is invalid or missing (Spec §5.4). */
export type AuthenticationFailure =
  | 'missing'
  | 'malformed'
  | 'unknown'
  | 'wrong_secret'
  | 'ended'
  | 'in_doubt'

/**
 * A cache of verified headers and their key ids, because checking a secret is the most expensive part of authentication. A map looks headers up
 * by hash, so the time of a look-up reveals nothing about a secret. The key's state is still checked for each call.
 */
const verifiedIn = new WeakMap<KeyDirectory, Map<string, string>>()
const verifiedMax = 10_000

type Authenticating = {
  readonly directory: KeyDirectory
  readonly secrets: Secrets
  readonly nowMs: number
}

/**
 * Returns the key in an `x-api-key` header, or the reason why it is not valid. If the key's stream must be read, returns a promise, which
 * rejects with `Unavailable` if the event log does not answer. If the header is sent twice, Node.js joins the values with a comma, so the key
 * is malformed.
 */
export const authenticate = (
  header: string | string[] | undefined,
  { directory, secrets, nowMs }: Authenticating,
): DirectoryKey | AuthenticationFailure | Promise<DirectoryKey | AuthenticationFailure> => {
  if (header === undefined || header === '') return 'missing'
  if (typeof header !== 'string') return 'malformed'
  const known = verifiedIn.get(directory)?.get(header)
  const test = known === undefined ? parseTestKey(header) : null
  const parsed = test ?? (known === undefined ? parseApiKey(header) : null)
  const keyId = known ?? parsed?.keyId
  if (keyId === undefined) return 'malformed'
  const judge = (key: FoundKey): DirectoryKey | AuthenticationFailure => {
    if (key === undefined) return 'unknown'
    if (key === 'in_doubt') return key
    if (parsed !== null && !sameHmac(secrets.apiKeyHmac(parsed.secret), key.secretHmac)) return 'wrong_secret'
    // A key with the wrong prefix for its stream (live or test) was never issued.
    if (parsed !== null && isTestOrganization(key.organizationId) !== (test !== null)) return 'wrong_secret'
    if (parsed !== null) remember(directory, header, keyId)
    return key.endsAtMs <= nowMs ? 'ended' : key
  }
  const found = directory.get(keyId)
  return found instanceof Promise ? found.then(judge) : judge(found)
}

const remember = (directory: KeyDirectory, header: string, keyId: string): void => {
  const verified = verifiedIn.get(directory) ?? new Map<string, string>()
  if (verified.size >= verifiedMax) verified.clear()
  verifiedIn.set(directory, verified.set(header, keyId))
}
