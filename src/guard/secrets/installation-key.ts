import { createSecretKey, hash, randomBytes } from 'node:crypto'
import { derivingFrom, type InstallationKey, type Sealer, sealerOf } from './secrets.ts'

/**
 * One random key per installation. Every HMAC, seal and cookie key derives from it. It is stored only wrapped with SECRET_KEY, in a
 * slot; a second slot holds it under the next SECRET_KEY while SECRET_KEY is being rotated.
 */

/** A SECRET_KEY. `id`: 12 hexadecimal digits that identify it to people and do not reveal it. */
export type SecretKey = InstallationKey & { readonly id: string }

/** The installation key under the SECRET_KEY with this id, sealed (AES-256-GCM). Safe to store anywhere. */
export type KeySlot = { readonly secret_key: string; readonly wrapped: string }

/** `text` has at least 32 characters of high entropy. */
export const secretKeyOf = (text: string): SecretKey => {
  const { derive } = derivingFrom(text)
  return { derive, id: hash('sha256', checkOf({ derive }), 'hex').slice(0, 12) }
}

/** A check value: equal for the same key, and useless to someone who searches for the key. */
export const checkOf = ({ derive }: InstallationKey): string => derive('check').toString('base64url')

const keyBytes = 32

const wrapperOf = ({ derive }: SecretKey): Sealer =>
  sealerOf(createSecretKey(derive('wrap installation key')))
const contextOf = (id: string): string => `installation key under ${id}`
const wrap = (key: string, secretKey: SecretKey): KeySlot => ({
  secret_key: secretKey.id,
  wrapped: wrapperOf(secretKey).seal(key, contextOf(secretKey.id)),
})

/** Makes an installation key. From now on it exists only in this slot. */
export const newKeySlot = (secretKey: SecretKey): KeySlot =>
  wrap(randomBytes(keyBytes).toString('base64url'), secretKey)

type OpenSlot = {
  readonly key: InstallationKey
  /** The SECRET_KEY that opened the slot. */
  readonly by: SecretKey
  /** The same installation key in a slot of another SECRET_KEY. */
  wrapFor(secretKey: SecretKey): KeySlot
}

/** The installation key, opened with the first of the SECRET_KEYs that fits one of the slots; null if none does. */
export const openSlots = (slots: readonly KeySlot[], secretKeys: readonly SecretKey[]): OpenSlot | null => {
  for (const by of secretKeys)
    for (const slot of slots) {
      const text =
        slot.secret_key === by.id ? wrapperOf(by).open(slot.wrapped, contextOf(slot.secret_key)) : null
      if (text !== null) return { key: derivingFrom(text), by, wrapFor: (secretKey) => wrap(text, secretKey) }
    }
  return null
}
