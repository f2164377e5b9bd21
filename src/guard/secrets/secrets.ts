import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hash,
  hkdfSync,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import type { RowSeal } from '../../../projections/projection.ts'

/** The random key of an installation (`installation-key.ts`). The key itself is never exposed. */
export type InstallationKey = {
  /** Returns a key of 32 bytes for one purpose. */
  derive(purpose: string): Buffer
}

const purposeSalt = 'enrichment-ledger'

/** `secret` must have high entropy and at least 32 characters. */
export const derivingFrom = (secret: string): InstallationKey => ({
  derive: (purpose) => Buffer.from(hkdfSync('sha256', secret, purposeSalt, purpose, 32)),
})

/**
 * Keyed hashes and seals. Each purpose has its own key, derived from the installation key. The hash of an address therefore reveals nothing
 * about an API key, and the installation key is necessary to search the event log for an address.
 */
export type Secrets = {
  /** Returns the HMAC-SHA-256 of an API key's secret part, in base64url. It is stored instead of the secret. */
  apiKeyHmac(secret: string): string
  /** Derives the secret that signs cookies from `text`. */
  cookieSecret(text: string): string
  /** Returns the HMAC-SHA-256 of an operator token's secret part, in base64url. */
  operatorTokenHmac(secret: string): string
  /** Returns the HMAC-SHA-256 of an address, in base64url. The event log contains it instead of the address. */
  addressHmac(address: string): string
  /** Returns the HMAC-SHA-256 of a mail domain, in base64url. A recipient that does not exist in that domain is derived from it. */
  recipientHmac(text: string): string
  /** Returns the HMAC-SHA-256 of a person's identifier, in base64url. Requests, erasures and events use it to identify the person. */
  identifierHmac(identifier: string): string
  /** Returns the HMAC-SHA-256 of a request's content, which shows whether two requests are equal and nothing else. */
  requestHmac(text: string): Buffer
  /** Computes the HMAC-SHA-256 of a row of a read model, in base64url. */
  readonly rowSeal: RowSeal
  /** Computes the HMAC-SHA-256 of the digest of a re-rate's plan. Used if no signing key is available. */
  readonly planSeal: RowSeal
  /** Returns a sealer for cookies and stored secrets. Stored personal data is sealed under epoch keys instead. */
  sealer(purpose: string): Sealer
}

/** Authenticated encryption (AES-256-GCM). `context` is not stored: `open` needs the same context again. */
export type Sealer = {
  /** Returns the nonce, ciphertext and tag in base64url. The result is different every time. */
  seal(text: string, context: string): string
  /** Returns null if the string was changed, or was not sealed with this key and context. */
  open(sealed: string, context: string): string | null
}

/** A sealer that uses the key of the current epoch (`epoch-keys.ts`), which is later destroyed. Sealed strings begin with the key's id and a dot. */
export type EpochSealer = {
  /** Rejects with `Unavailable` while the current key is not available. */
  seal(text: string, context: string): Promise<string>
  /** Also returns null if the key was destroyed. */
  open(sealed: string, context: string): string | null
}

/** If `source` is a string, the installation key is derived from it. */
export const createSecrets = (source: string | InstallationKey): Secrets => {
  const { derive } = typeof source === 'string' ? derivingFrom(source) : source
  const [apiKeyPepper, requestKey] = [createSecretKey(derive('api-key')), createSecretKey(derive('request'))]
  const apiKeyHmac = (secret: string): string =>
    createHmac('sha256', apiKeyPepper).update(secret).digest('base64url')
  const sealers = new Map<string, Sealer>()
  const requestHmac = (text: string): Buffer => createHmac('sha256', requestKey).update(text).digest()
  const identifierHmac = shortHmac(derive('identifier'))
  return {
    apiKeyHmac,
    cookieSecret: apiKeyHmac,
    operatorTokenHmac: shortHmac(derive('operator-token')),
    addressHmac: shortHmac(derive('address')),
    recipientHmac: shortHmac(derive('random-recipient')),
    identifierHmac,
    requestHmac,
    rowSeal: sealOf(derive('row-seal')),
    planSeal: sealOf(derive('rerate-plan')),
    sealer: (purpose) => {
      const known = sealers.get(purpose) ?? sealerOf(createSecretKey(derive(`seal/${purpose}`)))
      sealers.set(purpose, known)
      return known
    },
  }
}

const sealOf = (key: Buffer): RowSeal => {
  const of = shortHmac(key)
  return { of, fits: (text, seal) => sameHmac(of(text), seal) }
}

const nonceBytes = 12
const tagBytes = 16

/** `key` must have 256 bits. */
export const sealerOf = (key: KeyObject): Sealer => ({
  seal: (text, context) => {
    const nonce = randomBytes(nonceBytes)
    const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context))
    const sealed = [nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]
    return Buffer.concat(sealed).toString('base64url')
  },
  open: (sealed, context) => {
    const bytes = Buffer.from(sealed, 'base64url')
    if (bytes.length < nonceBytes + tagBytes) return null
    const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, nonceBytes))
      .setAAD(Buffer.from(context))
      .setAuthTag(bytes.subarray(-tagBytes))
    try {
      const text = decipher.update(bytes.subarray(nonceBytes, -tagBytes))
      return Buffer.concat([text, decipher.final()]).toString('utf8')
    } catch {
      return null
    }
  },
})

const blockBytes = 64
const messageBytesMax = 512

/**
 * Returns a function that computes the HMAC-SHA-256 (RFC 2104) of a string in base64url, with two hashes over one buffer. Every call needs it,
 * and `createHmac` takes twice as long, because it creates two native objects for each string. It is used only for long strings.
 */
export const shortHmac = (key: Buffer): ((text: string) => string) => {
  const secretKey = createSecretKey(key)
  const inner = Buffer.alloc(blockBytes + messageBytesMax, 0x36)
  const outer = Buffer.alloc(blockBytes + 32, 0x5c)
  key.forEach((byte, i) => {
    inner[i] = byte ^ 0x36
    outer[i] = byte ^ 0x5c
  })
  return (text) => {
    if (text.length * 3 > messageBytesMax)
      return createHmac('sha256', secretKey).update(text).digest('base64url')
    const end = blockBytes + inner.write(text, blockBytes)
    outer.write(hash('sha256', inner.subarray(0, end), 'hex'), blockBytes, 'hex')
    return hash('sha256', outer, 'base64url')
  }
}

/** Compares two HMACs in constant time. */
export const sameHmac = (a: string, b: string): boolean => {
  const [left, right] = [Buffer.from(a, 'latin1'), Buffer.from(b, 'latin1')]
  return left.length === right.length && timingSafeEqual(left, right)
}
