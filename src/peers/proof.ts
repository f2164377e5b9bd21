import { hkdfSync } from 'node:crypto'
import type { ConnectionOptions, TlsOptions } from 'node:tls'
import type { ProcessId } from './peer.ts'

/**
 * How two processes of one installation prove themselves to each other: TLS 1.3 with a pre-shared key, which both derive
 * from the installation's secret and from both process ids, in this order. There are no certificates.
 *
 * A connection that reaches another process than it was meant for (an address that a later run was given) ends in the
 * handshake, on both sides. The exchange of ephemeral keys keeps what was sent secret also where the secret is lost later.
 */

/** Goes up when frames, or what is in them, can no longer be read by an earlier version. */
const protocolVersion = 1
const pskBytes = 32
/** The least the secret may have, in bytes. */
const keyBytesMin = 32
const processIdForm = /^[0-9A-Za-z_-]{1,48}$/

/**
 * One cipher suite: the only one whose hash OpenSSL takes for a key without one. The key exchange without a post-quantum
 * part: a key shared beforehand is what such a part would add.
 */
export const peerTls = {
  minVersion: 'TLSv1.3',
  maxVersion: 'TLSv1.3',
  ciphers: 'TLS_AES_128_GCM_SHA256',
  ecdhCurve: 'X25519',
} as const satisfies TlsOptions & ConnectionOptions

type Ends = { readonly asker: ProcessId; readonly answerer: ProcessId }

/** The secret of the installation, or how it is asked for: it changes while processes run. */
export type PeerKey = Uint8Array | (() => Uint8Array)

/** Throws for an id that an identity cannot name, and for a key too short to be a secret. */
export const checkProofInput = (key: PeerKey, ids: readonly ProcessId[]): void => {
  const bad = ids.find((id) => !processIdForm.test(id))
  if (bad !== undefined) throw new TypeError(`${JSON.stringify(bad)} is no process id`)
  if (typeof key !== 'function' && key.byteLength < keyBytesMin)
    throw new TypeError(`the key of peers has less than ${keyBytesMin} bytes`)
}

/** What an asker says it is, in clear, and whom it means to reach. OpenSSL takes up to 128 bytes. */
export const identityOf = ({ asker, answerer }: Ends): string => `${protocolVersion}.${asker}.${answerer}`

export const preSharedKey = (key: PeerKey, ends: Ends): Buffer => {
  const bytes = typeof key === 'function' ? key() : key
  return Buffer.from(hkdfSync('sha256', bytes, 'enrichment-ledger peers', identityOf(ends), pskBytes))
}

/** The asker that an identity names, which is not proved yet; or why it cannot be meant for `self`. */
export const readIdentity = (
  identity: string,
  self: ProcessId,
): { asker: ProcessId } | { refused: string } => {
  const [version, asker, answerer, ...more] = identity.split('.')
  if (version !== String(protocolVersion)) return { refused: 'it speaks another version' }
  if (asker === undefined || !processIdForm.test(asker) || more.length > 0)
    return { refused: 'its identity has another form' }
  return answerer === self ? { asker } : { refused: 'it is meant for another process' }
}
