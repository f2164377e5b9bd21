import { createHmac, createSecretKey, hkdfSync, timingSafeEqual } from 'node:crypto'

/**
 * Keyed hashes under keys derived from SECRET_KEY, one per purpose: knowing the hash of an address tells nothing about
 * a key's secret, and the event log cannot be searched for an address by whoever lacks the secret.
 */
export type Secrets = {
  /** HMAC-SHA-256 of an API key's secret part, base64url. What is stored instead of the secret. */
  apiKeyHmac(secret: string): string
  /** HMAC-SHA-256 of an address, base64url. What stands in the event log instead of the address. */
  addressHmac(address: string): string
}

export const secretKeyBytesMin = 32

/** `secretKey` is at least 32 characters of high entropy; changing it makes every issued key unusable. */
export const createSecrets = (secretKey: string): Secrets => {
  const derive = (purpose: string) =>
    createSecretKey(Buffer.from(hkdfSync('sha256', secretKey, 'enrichment-ledger', purpose, 32)))
  const apiKeyPepper = derive('api-key')
  const addressKey = derive('address')
  return {
    apiKeyHmac: (secret) => createHmac('sha256', apiKeyPepper).update(secret).digest('base64url'),
    addressHmac: (address) => createHmac('sha256', addressKey).update(address).digest('base64url'),
  }
}

/** Compares two HMACs in a time that does not depend on where they differ. */
export const sameHmac = (a: string, b: string): boolean => {
  const [left, right] = [Buffer.from(a, 'latin1'), Buffer.from(b, 'latin1')]
  return left.length === right.length && timingSafeEqual(left, right)
}
