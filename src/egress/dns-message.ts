import { type Answer, type DecodedPacket, decode, encode, RECURSION_DESIRED } from 'dns-packet'
import { parseAddress } from './address.ts'

/**
 * Encodes a DNS question as a message, and interprets the answer. Pure. `dns-packet` reads and writes the wire format (RFC 1035). The bytes are not
 * trusted: answers to a different question and records of other names are ignored, and special characters in names are escaped.
 */

export type DnsType = 'A' | 'AAAA' | 'MX'
export type DnsQuestion = { readonly id: number; readonly name: string; readonly type: DnsType }

/** `value` is an address, or the host name of a mail exchanger. The priority is 0, except for MX records. */
export type DnsRecord = { readonly value: string; readonly priority: number }

/**
 * `ttlSeconds` is how long the answer can be cached: the shortest TTL in the chain of aliases, or the negative TTL of RFC 2308. It is null for a
 * negative answer without a TTL. `code` is a code of `node:dns`, such as ESERVFAIL, EREFUSED or ETIMEOUT.
 */
export type DnsAnswer =
  | { readonly kind: 'records'; readonly records: readonly DnsRecord[]; readonly ttlSeconds: number }
  | { readonly kind: 'not_found' | 'no_data'; readonly ttlSeconds: number | null }
  | { readonly kind: 'failed'; readonly code: string }

/** `truncated`: the answer did not fit into a datagram and must be requested over TCP. */
export type DnsResponse = DnsAnswer | { readonly kind: 'truncated' }

const headerOctets = 12
/** The maximum length of a name as text (RFC 1035 §2.3.4). */
const nameLengthMax = 253
const labelPattern = /^[a-z0-9_-]{1,63}$/i
/** More records, including authority records, than are in the answer for any real mail domain. */
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

/** Returns the query as bytes, or null if the name is not a host name (letters, digits, `-`, `_`; lengths as in RFC 1035). */
export const encodeQuestion = ({ id, name, type }: DnsQuestion): Buffer | null =>
  name.length <= nameLengthMax && name.split('.').every((label) => labelPattern.test(label))
    ? encode({ type: 'query', id, flags: RECURSION_DESIRED, questions: [{ name, type }] })
    : null

/**
 * Returns null for a message that does not answer this question, such as a message with a different id or name. The caller then continues to wait, so
 * that a forged message cannot end the wait. An invalid answer to this question becomes EBADRESP.
 */
export const decodeResponse = (message: Buffer, question: DnsQuestion): DnsResponse | null => {
  if (message.length < headerOctets || message.readUInt16BE(0) !== question.id) return null
  const flags = message.readUInt16BE(2)
  const isResponse = (flags & 0xf800) === 0x8000
  if (!isResponse || message.readUInt16BE(4) !== 1) return null
  const packet = decoded(message)
  if (packet !== null && !answersQuestion(packet, question)) return null
  // A truncated message can be cut off anywhere, so it does not have to be valid.
  if ((flags & 0x0200) !== 0) return { kind: 'truncated' }
  if (packet === null) return badResponse
  const code = flags & 0x000f
  if (code !== 0 && code !== noSuchName) return { kind: 'failed', code: errorCodes[code] ?? badResponse.code }
  return conclude(packet, question, code === noSuchName)
}

/** Returns null for a message that cannot be decoded or that announces too many records. */
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
  // Without an SOA record, NS records are only a referral (RFC 2308 §2.2), and an alias without its target is an incomplete answer. Neither proves
  // that a record does not exist.
  const isResolved = owner === asked && !authorities.some((one) => one.type === 'NS')
  return negativeTtlSeconds !== null || isResolved
    ? { kind: 'no_data', ttlSeconds: negativeTtlSeconds }
    : badResponse
}

/** Returns null for an invalid address, because a record can be too short for an address. */
const recordOf = (answer: Answer): DnsRecord | null => {
  if (answer.type === 'MX')
    return { priority: answer.data.preference ?? 0, value: hostName(answer.data.exchange) }
  if (answer.type !== 'A' && answer.type !== 'AAAA') return null
  const address = parseAddress(answer.data)
  return address === null ? null : { priority: 0, value: address.canonical }
}

const ttlLimit = 0x7fffffff

/** A TTL whose top bit is set counts as 0 (RFC 2181 §8). */
const ttlOf = (answer: Answer): number => {
  const ttl = 'ttl' in answer ? (answer.ttl ?? 0) : 0
  return ttl > ttlLimit ? 0 : ttl
}

/**
 * Returns a name in lower case without the final dot, or an empty text for the root. Characters that host names cannot contain are escaped in
 * decimal, so that later code cannot mistake them for syntax.
 */
const hostName = (name: string): string =>
  name === '.'
    ? ''
    : name
        .toLowerCase()
        .replaceAll(/[^a-z0-9_.-]/g, (one) => `\\${String(one.charCodeAt(0)).padStart(3, '0')}`)
