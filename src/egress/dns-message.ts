import { type Answer, type DecodedPacket, decode, encode, RECURSION_DESIRED } from 'dns-packet'
import { parseAddress } from './address.ts'

/**
 * Encodes one DNS question as a message, and interprets the answer. Pure. `dns-packet` reads and writes the wire format (RFC 1035). The bytes are not
 * trusted. An answer to a different question does not count, records of other names are ignored, and special characters in names are escaped.
 */

export type DnsType = 'A' | 'AAAA' | 'MX'
export type DnsQuestion = { readonly id: number; readonly name: string; readonly type: DnsType }

/** `value` is an address, or the host name of an exchanger. Only MX records have a priority; others have 0. */
export type DnsRecord = { readonly value: string; readonly priority: number }

/**
 * `ttlSeconds` is how long the answer can be cached: the shortest TTL along the chain of aliases, or RFC 2308's negative TTL. It is null for a
 * negative answer without a TTL. Codes are those of `node:dns`: ESERVFAIL, EREFUSED, ETIMEOUT, …
 */
export type DnsAnswer =
  | { readonly kind: 'records'; readonly records: readonly DnsRecord[]; readonly ttlSeconds: number }
  | { readonly kind: 'not_found' | 'no_data'; readonly ttlSeconds: number | null }
  | { readonly kind: 'failed'; readonly code: string }

/** `truncated`: the answer did not fit into a datagram and must be requested over TCP. */
export type DnsResponse = DnsAnswer | { readonly kind: 'truncated' }

const headerOctets = 12
/** RFC 1035 §2.3.4. In text, a name has at most 253 characters. */
const nameLengthMax = 253
const labelPattern = /^[a-z0-9_-]{1,63}$/i
/** More records, including authority records, than the answer for any mail domain contains. */
const recordsReadMax = 256
/** Resolvers refuse longer chains of aliases. */
const aliasesMax = 8

const noSuchName = 3
const errorCodes: Readonly<Record<number, string>> = {
  1: 'EFORMERR',
  2: 'ESERVFAIL',
  4: 'ENOTIMP',
  5: 'EREFUSED',
}

export const badResponse = { kind: 'failed', code: 'EBADRESP' } as const satisfies DnsAnswer

/** Returns the query as bytes; null if the name is not a host name (letters, digits, `-`, `_`; RFC 1035 lengths). */
export const encodeQuestion = ({ id, name, type }: DnsQuestion): Buffer | null =>
  name.length <= nameLengthMax && name.split('.').every((label) => labelPattern.test(label))
    ? encode({ type: 'query', id, flags: RECURSION_DESIRED, questions: [{ name, type }] })
    : null

/**
 * Null for a message that does not answer this question, such as a message with a different id or name. The caller then keeps waiting, so that a
 * forged message cannot end the wait. An invalid answer to the question becomes EBADRESP.
 */
export const decodeResponse = (message: Buffer, question: DnsQuestion): DnsResponse | null => {
  if (message.length < headerOctets || message.readUInt16BE(0) !== question.id) return null
  const flags = message.readUInt16BE(2)
  const isResponse = (flags & 0xf800) === 0x8000
  if (!isResponse || message.readUInt16BE(4) !== 1) return null
  const packet = decoded(message)
  if (packet !== null && !answersQuestion(packet, question)) return null
  // A truncated message may be cut off anywhere, so it need not be valid.
  if ((flags & 0x0200) !== 0) return { kind: 'truncated' }
  if (packet === null) return badResponse
  const code = flags & 0x000f
  if (code !== 0 && code !== noSuchName) return { kind: 'failed', code: errorCodes[code] ?? badResponse.code }
  return conclude(packet, question, code === noSuchName)
}

/** Null for a message that cannot be read or that announces too many records. */
const decoded = (message: Buffer): DecodedPacket | null => {
  const records = message.readUInt16BE(6) + message.readUInt16BE(8) + message.readUInt16BE(10)
  if (records > recordsReadMax) return null
  try {
    return decode(message)
  } catch {
    return null
  }
}

const answersQuestion = ({ questions = [] }: DecodedPacket, { name, type }: DnsQuestion): boolean =>
  questions.every(
    (asked) =>
      hostName(asked.name) === name.toLowerCase() && asked.type === type && (asked.class ?? 'IN') === 'IN',
  )

/** Follows the aliases from the requested name, and ignores records of other names. */
const conclude = (
  { answers = [], authorities = [] }: DecodedPacket,
  { name, type }: DnsQuestion,
  isUnknownName: boolean,
): DnsAnswer => {
  const asked = name.toLowerCase()
  let owner = asked
  let ttlSeconds = ttlLimit
  for (let hops = 0; ; hops++) {
    const alias = answers.find((one) => one.type === 'CNAME' && hostName(one.name) === owner)
    if (alias?.type !== 'CNAME') break
    if (hops === aliasesMax) return badResponse
    owner = hostName(alias.data)
    ttlSeconds = Math.min(ttlSeconds, ttlOf(alias))
  }
  const mine = answers.filter((one) => one.type === type && hostName(one.name) === owner)
  if (mine.length > 0) {
    const records = mine.map(recordOf).filter((record) => record !== null)
    if (records.length < mine.length) return badResponse
    return { kind: 'records', records, ttlSeconds: Math.min(ttlSeconds, ...mine.map(ttlOf)) }
  }
  // RFC 2308 §5: the negative TTL is the last field of the SOA record, limited by the record's own TTL.
  const [negativeTtlSeconds = null] = authorities.flatMap((one) =>
    one.type === 'SOA' ? [Math.min(ttlOf(one), one.data.minimum ?? 0)] : [],
  )
  if (isUnknownName) return { kind: 'not_found', ttlSeconds: negativeTtlSeconds }
  // Without an SOA record, name servers are a referral (RFC 2308 §2.2), and an alias without its target is an incomplete answer. Neither proves
  // that a record does not exist.
  const isResolved = owner === asked && !authorities.some((one) => one.type === 'NS')
  return negativeTtlSeconds !== null || isResolved
    ? { kind: 'no_data', ttlSeconds: negativeTtlSeconds }
    : badResponse
}

/** Null for an invalid address. The wire format allows a record that is too short for an address. */
const recordOf = (answer: Answer): DnsRecord | null => {
  if (answer.type === 'MX')
    return { priority: answer.data.preference ?? 0, value: hostName(answer.data.exchange) }
  if (answer.type !== 'A' && answer.type !== 'AAAA') return null
  const address = parseAddress(answer.data)
  return address === null ? null : { priority: 0, value: address.canonical }
}

const ttlLimit = 0x7fffffff

/** RFC 2181 §8: a TTL with the top bit set is ignored. */
const ttlOf = (answer: Answer): number => {
  const ttl = 'ttl' in answer ? (answer.ttl ?? 0) : 0
  return ttl > ttlLimit ? 0 : ttl
}

/**
 * Returns a name in lower case without the final dot; empty for the root. Characters that host names cannot contain are escaped in decimal, so
 * that no later code takes them for syntax.
 */
const hostName = (name: string): string =>
  name === '.'
    ? ''
    : name
        .toLowerCase()
        .replaceAll(/[^a-z0-9_.-]/g, (one) => `\\${String(one.charCodeAt(0)).padStart(3, '0')}`)
