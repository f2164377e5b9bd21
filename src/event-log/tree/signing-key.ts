import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, createDurably, syncDirectory } from '../directory.ts'
import { keyIdOf } from './checkpoint-stream.ts'

/**
 * The key that signs checkpoints: an Ed25519 key in PKCS #8 PEM, in the file `checkpoint.key` (mode 0600) in KEY_DIR, which all processes of an
 * installation share.
 *
 * Until a new key is announced in the log, it is in `checkpoint-next.key`. It replaces the old key when it is first used.
 */
export type SigningKeyFiles = {
  readonly path: string
  /** Returns the key with this id, or null if it is not in the directory. */
  find(id: string): Promise<SigningKey | null>
  /** Returns all keys in the directory, without changing anything. */
  present(): SigningKey[]
  /** Returns the key in the directory, which is created if there is none. */
  first(): Promise<SigningKey>
  /** Returns a new key in addition to the current one. Every call returns the same key until it is used. */
  next(): Promise<SigningKey>
}

export type SigningKey = {
  readonly id: string
  readonly publicKey: Buffer
  sign(text: string): Buffer
}

export const createSigningKeyFiles = ({
  dir,
  makeDir,
}: {
  readonly dir: string
  readonly makeDir: () => Promise<void>
}): SigningKeyFiles => {
  const path = join(dir, 'checkpoint.key')
  const nextPath = join(dir, 'checkpoint-next.key')
  const made = async (at: string): Promise<SigningKey> => {
    const there = readKey(at)
    if (there !== null) return there
    await makeDir()
    await makeKey(at)
    return readKey(at) ?? fail(at, 'it was removed while it was being created')
  }
  return {
    path,
    find: async (id) => {
      const current = readKey(path)
      if (current?.id === id) return current
      const next = readKey(nextPath)
      if (next?.id !== id) return null
      await rename(nextPath, path).catch((error: unknown) => {
        // If the file does not exist, another process has already renamed it.
        if (codeOf(error) !== 'ENOENT') throw error
      })
      await syncDirectory(dir)
      return next
    },
    present: () => [readKey(path), readKey(nextPath)].filter((key) => key !== null),
    first: () => made(path),
    next: () => made(nextPath),
  }
}

const fail = (path: string, why: string, cause?: unknown): never => {
  throw new Error(`${path}: ${why}`, { cause })
}

const readKey = (path: string): SigningKey | null => {
  let pem: string
  try {
    pem = readFileSync(path, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    return fail(path, `it cannot be read (${codeOf(error) ?? 'unknown'})`, error)
  }
  try {
    return keyFrom(pem)
  } catch (error) {
    return fail(
      path,
      'it is damaged. Restore it from its copy, or remove it and announce another key with "event-log announce-key"',
      error,
    )
  }
}

const keyFrom = (pem: string): SigningKey => {
  const key = createPrivateKey(pem)
  if (key.asymmetricKeyType !== 'ed25519') throw new Error('not an Ed25519 key')
  const publicKey = Buffer.from(createPublicKey(key).export({ format: 'jwk' }).x ?? '', 'base64url')
  return { id: keyIdOf(publicKey), publicKey, sign: (text) => sign(null, Buffer.from(text), key) }
}

const makeKey = async (path: string): Promise<void> => {
  const pem = generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' })
  await createDurably(path, pem.toString()).catch((cause: unknown) =>
    fail(
      path,
      `it cannot be created (${codeOf(cause) ?? 'unknown'}). KEY_DIR must be a directory that this user can write to, on a file system with hard links`,
      cause,
    ),
  )
}
