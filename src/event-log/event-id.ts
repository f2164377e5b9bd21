import { hash } from 'node:crypto'

/** The namespace of every id this service derives. */
const namespace = Buffer.from('5a1c9a1f7e0b5c1e9d7c3f6c2b8e4d10', 'hex')

/**
 * A deterministic UUIDv5 (RFC 9562 §5.5) of a name. The same name gives the same id in every process for ever: that
 * is what makes a resent append, and a retried call, recognizable.
 */
export const uuidV5 = (name: string): string => {
  const digest = hash('sha1', Buffer.concat([namespace, Buffer.from(name, 'utf8')]), 'hex')
  const variant = '89ab'.charAt(Number.parseInt(digest.charAt(16), 16) & 3)
  return `${digest.slice(0, 8)}-${digest.slice(8, 12)}-5${digest.slice(13, 16)}-${variant}${digest.slice(17, 20)}-${digest.slice(20, 32)}`
}

/**
 * The id of the nth event of a call or command: organization, Idempotency-Key or request id, index
 * (ledger protocol rule 1).
 */
export const eventIdOf = (scope: string, key: string, index: number): string => uuidV5(`${scope}/${key}/${index}`)
