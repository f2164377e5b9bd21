import { isTestOrganization } from '../events/test-organization.ts'
import { parseApiKey } from '../keys/api-key.ts'
import { parseTestKey } from '../keys/test-key.ts'
import type { DirectoryKey, FoundKey, KeyDirectory } from './key-directory.ts'
import type { Secrets } from './secrets.ts'

/** Why a call is not authenticated. The answer says only that the key is invalid or missing (Spec §5.4). */
export type AuthenticationFailure =
  | 'missing'
  | 'malformed'
  | 'unknown'
  | 'wrong_secret'
  | 'ended'
  | 'in_doubt'

/**
 * Headers that were verified before, with their key id and the SECRET_KEY the key's secret was under, per directory: the check of a secret, though fast, is the
 * costliest part of authentication. They are found by hash, so the time this takes says nothing about a secret. The
 * key's state is read anew each time.
 */
type Verified = { readonly keyId: string; readonly under: string }
const verifiedIn = new WeakMap<KeyDirectory, Map<string, Verified>>()
const verifiedMax = 10_000

type Authenticating = {
  readonly directory: KeyDirectory
  readonly secrets: Secrets
  readonly nowMs: number
  readonly rehash?: ((keyId: string, secret: string) => void) | undefined
}

/**
 * The key behind an `x-api-key` header, or why there is none. It reads only memory. If the key's stream has to be
 * read first, it returns a promise, which rejects with `Unavailable` when the event log does not answer. A header sent
 * twice arrives joined by a comma and so is malformed.
 *
 * A secret that is kept under an earlier SECRET_KEY is checked under that; `rehash` is told of it, and not waited for.
 */
export const authenticate = (
  header: string | string[] | undefined,
  { directory, secrets, nowMs, rehash }: Authenticating,
): DirectoryKey | AuthenticationFailure | Promise<DirectoryKey | AuthenticationFailure> => {
  if (header === undefined || header === '') return 'missing'
  if (typeof header !== 'string') return 'malformed'
  const verified = verifiedIn.get(directory)?.get(header)
  // After a rotation it is looked at again, so that it is told of.
  const known = verified?.under === secrets.keyId() ? verified : undefined
  const test = known === undefined ? parseTestKey(header) : null
  const parsed = test ?? (known === undefined ? parseApiKey(header) : null)
  const keyId = known?.keyId ?? parsed?.keyId
  if (keyId === undefined) return 'malformed'
  const judge = (key: FoundKey): DirectoryKey | AuthenticationFailure => {
    if (key === undefined) return 'unknown'
    if (key === 'in_doubt') return key
    const under = parsed === null ? null : secrets.apiKeyUnder(parsed.secret, key.secretHmac)
    if (parsed !== null && under === null) return 'wrong_secret'
    // What a key may do is in its stream. A text that says something else of it was never issued.
    if (parsed !== null && isTestOrganization(key.organizationId) !== (test !== null)) return 'wrong_secret'
    if (under !== null) remember(directory, header, { keyId, under })
    if (key.endsAtMs <= nowMs) return 'ended'
    if (parsed !== null && under !== secrets.keyId()) rehash?.(keyId, parsed.secret)
    return key
  }
  const found = directory.get(keyId)
  return found instanceof Promise ? found.then(judge) : judge(found)
}

const remember = (directory: KeyDirectory, header: string, found: Verified): void => {
  const verified = verifiedIn.get(directory) ?? new Map<string, Verified>()
  if (verified.size >= verifiedMax) verified.clear()
  verifiedIn.set(directory, verified.set(header, found))
}
