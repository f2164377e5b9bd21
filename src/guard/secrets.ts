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

/**
 * Keyed hashes under keys derived from SECRET_KEY, one per purpose: the hash of an address says nothing about
 * a key's secret, and without the secret the event log cannot be searched for an address.
 */
export type Secrets = {
  /** HMAC-SHA-256 of an API key's secret part, base64url. What is stored instead of the secret. */
  apiKeyHmac(secret: string): string
  /** HMAC-SHA-256 of the secret part of a person's token for the command line, base64url. */
  operatorTokenHmac(secret: string): string
  /** HMAC-SHA-256 of an address, base64url. It is in the event log instead of the address. */
  addressHmac(address: string): string
  /** HMAC-SHA-256 of a mail domain, base64url: what a recipient that no one has there is made of. */
  recipientHmac(text: string): string
  /** HMAC-SHA-256 of a person's identifier, base64url: requests, erasures and the event log know a person by it. */
  identifierHmac(identifier: string): string
  /** HMAC-SHA-256 of what a request said: equal for equal requests, and of no use to someone who guesses at the request. */
  requestHmac(text: string): Buffer
  /** HMAC-SHA-256 of a row of a read model, base64url: someone without the key can change the row, but the change is not believed. */
  rowSeal(text: string): string
  /** The same of the digest of a re-rate's plan, where no signing key is at hand. */
  planSeal(text: string): string
  /** What the processes of an installation prove themselves to each other with. */
  readonly peerKey: Uint8Array
  /** For what others keep for us, such as cookies. What is kept here about people is sealed under epoch keys, which end. */
  sealer(purpose: string): Sealer
}

/** Authenticated encryption (AES-256-GCM). `context` is not stored: it has to be named again to open. */
export type Sealer = {
  /** base64url of nonce, ciphertext and tag; different every time. */
  seal(text: string, context: string): string
  /** Null for anything not sealed here, under this context, as it is. */
  open(sealed: string, context: string): string | null
}

/** The same under the key of the current epoch (`epoch-keys.ts`), which ends: what is sealed begins with the key's id and a dot. */
export type EpochSealer = {
  /** Rejects with `Unavailable` while the current key is not at hand. */
  seal(text: string, context: string): Promise<string>
  /** Null also for what was sealed under a key that is gone. */
  open(sealed: string, context: string): string | null
}

const purposeSalt = 'enrichment-ledger'

/** `secretKey` is at least 32 characters of high entropy; changing it makes every issued key unusable. */
export const createSecrets = (secretKey: string): Secrets => {
  const derive = (purpose: string) =>
    createSecretKey(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, purpose, 32)))
  const apiKeyPepper = derive('api-key')
  const requestKey = derive('request')
  return {
    apiKeyHmac: (secret) => createHmac('sha256', apiKeyPepper).update(secret).digest('base64url'),
    operatorTokenHmac: shortHmac(
      Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'operator-token', 32)),
    ),
    addressHmac: shortHmac(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'address', 32))),
    recipientHmac: shortHmac(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'random-recipient', 32))),
    identifierHmac: shortHmac(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'identifier', 32))),
    rowSeal: shortHmac(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'row-seal', 32))),
    planSeal: shortHmac(Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'rerate-plan', 32))),
    requestHmac: (text) => createHmac('sha256', requestKey).update(text).digest(),
    peerKey: Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, 'peers', 32)),
    sealer: (purpose) => sealerOf(derive(`seal/${purpose}`)),
  }
}

const nonceBytes = 12
const tagBytes = 16

/** Seals under a 256-bit key. */
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
 * HMAC-SHA-256 (RFC 2104) of short texts in base64url: the two hashes it is defined by, over one buffer. `createHmac`
 * builds two native objects for each text, which costs twice as much as the hashing and is paid on every call.
 * Longer texts go to `createHmac`.
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

/** Compares two HMACs in a time that does not depend on where they differ. */
export const sameHmac = (a: string, b: string): boolean => {
  const [left, right] = [Buffer.from(a, 'latin1'), Buffer.from(b, 'latin1')]
  return left.length === right.length && timingSafeEqual(left, right)
}
