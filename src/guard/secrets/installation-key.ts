import { createSecretKey, hash, randomBytes } from 'node:crypto'
import { derivingFrom, type InstallationKey, type Sealer, sealerOf } from './secrets.ts'

/**
 * The random key of an installation, from which all keys for HMACs, seals and cookies are derived. It is stored only in slots, wrapped with
 * SECRET_KEY. While SECRET_KEY is being rotated, a second slot contains the same key wrapped with the next SECRET_KEY.
 */

/** `id`: 12 hexadecimal digits that identify a SECRET_KEY without revealing it. */
export type SecretKey = InstallationKey & { readonly id: string }

/** The installation key, sealed (AES-256-GCM) with the SECRET_KEY that has the id `secret_key`. It can safely be stored anywhere. */
export type KeySlot = { readonly secret_key: string; readonly wrapped: string }

/** `text` must have at least 32 characters of high entropy. */
export const secretKeyOf = (text: string): SecretKey => {
  const { derive } = derivingFrom(text)
  return { derive, id: hash('sha256', checkOf({ derive }), 'hex').slice(0, 12) }
}

/** Returns a value that is the same for the same key, and reveals nothing about the key. */
export const checkOf = ({ derive }: InstallationKey): string => derive('check').toString('base64url')

const keyBytes = 32

const wrapperOf = ({ derive }: SecretKey): Sealer =>
  sealerOf(createSecretKey(derive('wrap installation key')))
const contextOf = (id: string): string => `installation key under ${id}`
const wrap = (key: string, secretKey: SecretKey): KeySlot => ({
  secret_key: secretKey.id,
  wrapped: wrapperOf(secretKey).seal(key, contextOf(secretKey.id)),
})

/** Creates an installation key, which exists only in the returned slot. */
export const newKeySlot = (secretKey: SecretKey): KeySlot =>
  wrap(randomBytes(keyBytes).toString('base64url'), secretKey)

type OpenSlot = {
  readonly key: InstallationKey
  readonly by: SecretKey
  /** Returns the same installation key in a slot for another SECRET_KEY. */
  wrapFor(secretKey: SecretKey): KeySlot
}

/** Opens the installation key with the first SECRET_KEY that matches a slot. Returns null if none matches. */
export const openSlots = (slots: readonly KeySlot[], secretKeys: readonly SecretKey[]): OpenSlot | null => {
  for (const by of secretKeys)
    for (const slot of slots) {
      const text =
        slot.secret_key === by.id ? wrapperOf(by).open(slot.wrapped, contextOf(slot.secret_key)) : null
      if (text !== null) return { key: derivingFrom(text), by, wrapFor: (secretKey) => wrap(text, secretKey) }
    }
  return null
}
