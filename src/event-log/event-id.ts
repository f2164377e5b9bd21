import { hash } from 'node:crypto'

/** The namespace of every id this service derives, followed by room for a name. Hashing copies out of it before it returns. */
const scratch = Buffer.alloc(1_024)
const namespaceBytes = scratch.write('5a1c9a1f7e0b5c1e9d7c3f6c2b8e4d10', 'hex')
const nameBytesMax = scratch.length - namespaceBytes

/**
 * A deterministic UUIDv5 (RFC 9562 §5.5) of a name. The same name gives the same id in every process forever, so
 * a resent append and a retried call can be recognized. Throws a RangeError for names beyond 1,008 bytes.
 */
export const uuidV5 = (name: string): string => {
  // A character takes at most three bytes here, so only long names need counting.
  if (name.length * 3 > nameBytesMax && Buffer.byteLength(name) > nameBytesMax)
    throw new RangeError(`a name of ${Buffer.byteLength(name)} bytes; at most ${nameBytesMax}`)
  const end = namespaceBytes + scratch.write(name, namespaceBytes)
  const digest = hash('sha1', scratch.subarray(0, end), 'hex')
  const variant = '89ab'.charAt(Number.parseInt(digest.charAt(16), 16) & 3)
  return `${digest.slice(0, 8)}-${digest.slice(8, 12)}-5${digest.slice(13, 16)}-${variant}${digest.slice(17, 20)}-${digest.slice(20, 32)}`
}

/**
 * The id of the nth event of a call or command: organization, Idempotency-Key or request id, index
 * (ledger protocol rule 1).
 */
export const eventIdOf = (scope: string, key: string, index: number): string =>
  uuidV5(`${scope}/${key}/${index}`)
