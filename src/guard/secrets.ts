import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hash,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import type { RowSeal } from '../../projections/projection.ts'
import { type RingKey, ringFrom, type SecretRing } from './secret-ring.ts'

/**
 * Keyed hashes under keys derived from SECRET_KEY, one per purpose: the hash of an address says nothing about
 * a key's secret, and without the secret the event log cannot be searched for an address.
 *
 * What is made is made under the key in use. What is there already may be under an earlier one of the ring
 * (`secret-ring.ts`): it is compared, looked up and opened under each of them, at most `ringKeysMax`. Names in the plural
 * give one hash for each key, that of the key in use first.
 *
 * Each throws `Unavailable` in a process that does not have the key in use.
 */
export type Secrets = {
  /** The id of the key in use (`secret-ring.ts`). */
  keyId(): string
  /** The same; null for the first key the installation had, which is that of everything that names none. */
  namedKey(): string | null
  /** HMAC-SHA-256 of an API key's secret part, base64url. What is stored instead of the secret. */
  apiKeyHmac(secret: string): string
  /** The id of the key under which an API key's secret part has this HMAC; null: it is another secret's. */
  apiKeyUnder(secret: string, hmac: string): string | null
  /** For what signs cookies: texts that are no API key's secret, so that their HMACs are known to no one. */
  cookieSecrets(text: string): string[]
  /** HMAC-SHA-256 of the secret part of a person's token for the command line, base64url. */
  operatorTokenHmac(secret: string): string
  /** As `apiKeyUnder`. */
  operatorTokenUnder(secret: string, hmac: string): string | null
  /** HMAC-SHA-256 of an address, base64url. It is in the event log instead of the address. */
  addressHmac(address: string): string
  addressHmacs(address: string): string[]
  /** HMAC-SHA-256 of a mail domain, base64url: what a recipient that no one has there is made of. */
  recipientHmac(text: string): string
  /** HMAC-SHA-256 of a person's identifier, base64url: requests, erasures and the event log know a person by it. */
  identifierHmac(identifier: string): string
  identifierHmacs(identifier: string): string[]
  /** The id of the key under which an identifier has this HMAC; null: it is another one's. */
  identifierUnder(identifier: string, hmac: string): string | null
  /** HMAC-SHA-256 of what a request said: equal for equal requests, and of no use to someone who guesses at the request. */
  requestHmac(text: string): Buffer
  requestHmacs(text: string): Buffer[]
  /** Of what is remembered for a day: under the eldest key, so that it is the same before a rotation and after. */
  memoryHmac(text: string): Buffer
  /** HMAC-SHA-256 of a row of a read model, base64url. */
  readonly rowSeal: RowSeal
  /** As `identifierUnder`, of a row's seal. */
  rowSealUnder(text: string, seal: string): string | null
  /** The same of the digest of a re-rate's plan, where no signing key is at hand. */
  readonly planSeal: RowSeal
  /** For what others keep for us, such as cookies. What is kept here about people is sealed under epoch keys, which end. */
  sealer(purpose: string): RingSealer
}

/** Seals under the key in use and opens what is sealed under any of the ring. */
type RingSealer = Sealer & {
  /** The id of the key it is sealed under; null for what `open` gives null for. */
  under(sealed: string, context: string): string | null
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

type KeyHashes = ReturnType<typeof createKeyHashes>

/** What one key of the ring gives, each under a key of its own. */
const createKeyHashes = ({ derive: bytes }: RingKey) => {
  const apiKeyPepper = createSecretKey(bytes('api-key'))
  const requestKey = createSecretKey(bytes('request'))
  const sealers = new Map<string, Sealer>()
  return {
    apiKey: (secret: string) => createHmac('sha256', apiKeyPepper).update(secret).digest('base64url'),
    operatorToken: shortHmac(bytes('operator-token')),
    address: shortHmac(bytes('address')),
    recipient: shortHmac(bytes('random-recipient')),
    identifier: shortHmac(bytes('identifier')),
    row: shortHmac(bytes('row-seal')),
    plan: shortHmac(bytes('rerate-plan')),
    request: (text: string) => createHmac('sha256', requestKey).update(text).digest(),
    sealer: (purpose: string): Sealer => {
      const known = sealers.get(purpose) ?? sealerOf(createSecretKey(bytes(`seal/${purpose}`)))
      sealers.set(purpose, known)
      return known
    },
  }
}

/** Made once for each key, when it is first needed. */
const made = new WeakMap<RingKey, KeyHashes>()
const hashesOf = (key: RingKey): KeyHashes => {
  const known = made.get(key) ?? createKeyHashes(key)
  made.set(key, known)
  return known
}

/** A text is a ring of one key. */
export const createSecrets = (source: string | SecretRing): Secrets => {
  const ring = ringFrom(source)
  const all = <Made>(make: (hashes: KeyHashes) => Made): Made[] =>
    ring.keys().map((key) => make(hashesOf(key)))
  const now = (): KeyHashes => hashesOf(ring.current())
  const under = (
    hash: 'apiKey' | 'operatorToken' | 'identifier' | 'row',
    secret: string,
    hmac: string,
  ): string | null => ring.keys().find((key) => sameHmac(hashesOf(key)[hash](secret), hmac))?.id ?? null
  const sealOf = (hash: 'row' | 'plan'): RowSeal => ({
    of: (text) => now()[hash](text),
    fits: (text, seal) => ring.keys().some((key) => sameHmac(hashesOf(key)[hash](text), seal)),
  })
  return {
    keyId: () => ring.current().id,
    namedKey: () => (ring.isFirst() ? null : ring.current().id),
    apiKeyHmac: (secret) => now().apiKey(secret),
    apiKeyUnder: (secret, hmac) => under('apiKey', secret, hmac),
    cookieSecrets: (text) => all(({ apiKey }) => apiKey(text)),
    operatorTokenHmac: (secret) => now().operatorToken(secret),
    operatorTokenUnder: (secret, hmac) => under('operatorToken', secret, hmac),
    addressHmac: (address) => now().address(address),
    addressHmacs: (address) => all((hashes) => hashes.address(address)),
    recipientHmac: (text) => now().recipient(text),
    identifierHmac: (identifier) => now().identifier(identifier),
    identifierHmacs: (identifier) => all((hashes) => hashes.identifier(identifier)),
    identifierUnder: (identifier, hmac) => under('identifier', identifier, hmac),
    requestHmac: (text) => now().request(text),
    requestHmacs: (text) => all((hashes) => hashes.request(text)),
    memoryHmac: (text) => hashesOf(ring.eldest()).request(text),
    rowSeal: sealOf('row'),
    rowSealUnder: (text, seal) => under('row', text, seal),
    planSeal: sealOf('plan'),
    sealer: (purpose) => ringSealer(ring, purpose),
  }
}

const ringSealer = (ring: SecretRing, purpose: string): RingSealer => {
  const opened = (sealed: string, context: string): { id: string; text: string } | null => {
    for (const key of ring.keys()) {
      const text = hashesOf(key).sealer(purpose).open(sealed, context)
      if (text !== null) return { id: key.id, text }
    }
    return null
  }
  return {
    seal: (text, context) => hashesOf(ring.current()).sealer(purpose).seal(text, context),
    open: (sealed, context) => opened(sealed, context)?.text ?? null,
    under: (sealed, context) => opened(sealed, context)?.id ?? null,
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
