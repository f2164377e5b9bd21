/**
 * Finds the data that an attacker can decrypt with a data directory, SECRET_KEY, the remaining epoch keys, and the identifiers of
 * one person. Every text that might be sealed is tried with every key that the attacker can derive.
 */
import { createSecretKey, hkdfSync, type KeyObject } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type InstallationKey, sealerOf } from '../../src/guard/secrets/secrets.ts'

export type Target = {
  readonly name: string
  readonly purpose: string
  /** The contexts for which the value was sealed. */
  readonly contexts: readonly string[]
  /** A part of the decrypted text. */
  readonly mark: string
}

const filesIn = async (dir: string): Promise<{ path: string; bytes: Buffer }[]> => {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true })
  const files: { path: string; bytes: Buffer }[] = []
  for (const entry of entries.filter((one) => one.isFile())) {
    const path = join(entry.parentPath, entry.name)
    files.push({ path, bytes: await readFile(path) })
  }
  return files
}

/** The length in base64url of a sealed 32-byte key: a nonce, the key's 43 characters and a tag. */
const sealedKeyLength = 95

/**
 * Returns the names of the targets that can be decrypted, plus `profile` if a profile in the event log contains `mark`. The keys
 * of the map `payloads` are contexts.
 */
export const openable = async (
  dir: string,
  {
    key: installationKey,
    targets,
    payloads,
    mark,
  }: {
    key: InstallationKey
    targets: readonly Target[]
    payloads: ReadonlyMap<string, string>
    mark: string
  },
): Promise<string[]> => {
  const files = await filesIn(dir)
  const roots = files
    .filter(({ path }) => path.endsWith('.key'))
    .map(({ bytes }) => {
      const [, encoded = ''] = bytes.toString().trim().split(' ')
      return Buffer.from(encoded, 'base64url')
    })
  const salt = installationKey.derive('epoch-key')
  const keysFor = (purpose: string): KeyObject[] => [
    createSecretKey(installationKey.derive(`seal/${purpose}`)),
    ...roots.map((root) =>
      createSecretKey(Buffer.from(hkdfSync('sha256', root, salt, `seal/${purpose}`, 32))),
    ),
  ]
  const texts = files.map(({ bytes }) => bytes.toString('latin1'))
  const found = new Set<string>()
  const open = (
    candidate: string,
    keys: readonly KeyObject[],
    contexts: readonly string[],
    use: (text: string, context: string) => void,
  ) => {
    for (const key of keys)
      for (const context of contexts) {
        const text = sealerOf(key).open(candidate, context)
        if (text !== null) use(text, context)
      }
  }
  const contexts = [...payloads.keys()]
  const profileKeys = keysFor('profile-key')
  const keyed = targets.map((target) => ({ ...target, keys: keysFor(target.purpose) }))
  const seen = new Set<string>()
  for (const text of texts)
    for (const [run] of text.matchAll(/[\w-]{50,}/g)) {
      if (seen.has(run)) continue
      seen.add(run)
      // In a database page, the bytes next to a value can look like part of the value.
      for (let at = 0; at + sealedKeyLength <= run.length && at < 64; at++)
        open(run.slice(at, at + sealedKeyLength), profileKeys, contexts, (payloadKey, context) => {
          const bytes = Buffer.from(payloadKey, 'base64url')
          const payload = sealerOf(createSecretKey(bytes)).open(payloads.get(context) ?? '', context)
          if (payload?.includes(mark) === true) found.add('profile')
        })
      for (const { name, keys, contexts, mark: own } of keyed)
        for (let from = 0; from < 3; from++)
          for (let less = 0; less < 6; less++)
            open(run.slice(from, run.length - less), keys, contexts, (opened) => {
              if (opened.includes(own)) found.add(name)
            })
    }
  return [...found].sort()
}
