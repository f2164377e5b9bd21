import { formatIPv6 } from './address.ts'

/**
 * The wire format of DNS (RFC 1035), as much of it as asking one question and believing the answer takes. Pure: bytes
 * in, values out. The bytes come from strangers, so every read is within the message (a Buffer throws RangeError past
 * its end), every name terminates, and an answer to anything but the question asked is no answer.
 */

export type DnsType = 'A' | 'AAAA' | 'MX'
export type DnsQuestion = { readonly id: number; readonly name: string; readonly type: DnsType }

/** `value` is an address, or the host name of an exchanger; only MX records have a priority, others say 0. */
export type DnsRecord = { readonly value: string; readonly priority: number }

/**
 * What is known after asking. `ttlSeconds` is how long the zone lets it be remembered: the least along the chain of
 * aliases, or RFC 2308's negative TTL; null where a negative answer came without one.
 * Codes are those of `node:dns`: ESERVFAIL, EREFUSED, ETIMEOUT, …
 */
export type DnsAnswer =
  | { readonly kind: 'records'; readonly records: readonly DnsRecord[]; readonly ttlSeconds: number }
  | { readonly kind: 'not_found' | 'no_data'; readonly ttlSeconds: number | null }
  | { readonly kind: 'failed'; readonly code: string }

/** An answer, or what has to be asked next to get one. */
export type DnsResponse =
  | DnsAnswer
  | { readonly kind: 'truncated' }
  | { readonly kind: 'alias'; readonly name: string; readonly ttlSeconds: number }

const typeCodes = { A: 1, AAAA: 28, MX: 15 } as const satisfies Record<DnsType, number>
const cnameCode = 5
const soaCode = 6
const nsCode = 2
const internetClass = 1
const headerOctets = 12

/** RFC 1035 §2.3.4; the text of a name is one octet shorter than its 254 octets before the root label. */
const nameLengthMax = 253
const labelLengthMax = 63
/** More than any mail domain has, in one message with its authorities. */
const recordsReadMax = 256
/** Resolvers refuse longer chains of aliases themselves. */
const aliasesMax = 8

const errorCodes: Readonly<Record<number, string>> = {
  1: 'EFORMERR',
  2: 'ESERVFAIL',
  4: 'ENOTIMP',
  5: 'EREFUSED',
}

/** The query as bytes; null for a name that is no host name (letters, digits, `-`, `_`; RFC 1035 lengths). */
export const encodeQuestion = ({ id, name, type }: DnsQuestion): Buffer | null => {
  const labels = name.split('.')
  const wellFormed = labels.every((label) => label.length <= labelLengthMax && /^[a-z0-9_-]+$/i.test(label))
  if (!wellFormed || name.length > nameLengthMax) return null
  const message = Buffer.alloc(headerOctets + name.length + 2 + 4)
  message.writeUInt16BE(id, 0)
  message.writeUInt16BE(0x0100, 2) // A standard query; recursion desired.
  message.writeUInt16BE(1, 4)
  let at = headerOctets
  for (const label of labels) {
    message.writeUInt8(label.length, at)
    message.write(label, at + 1, 'latin1')
    at += label.length + 1
  }
  message.writeUInt16BE(typeCodes[type], at + 1)
  message.writeUInt16BE(internetClass, at + 3)
  return message
}

/**
 * Null when the message does not answer this question: another id, another name, a query. Whoever waits goes on
 * waiting then, or a stranger could end the wait. What does answer it but makes no sense is EBADRESP.
 */
export const decodeResponse = (message: Buffer, question: DnsQuestion): DnsResponse | null => {
  try {
    if (message.readUInt16BE(0) !== question.id) return null
    const flags = message.readUInt16BE(2)
    if ((flags & 0xf800) !== 0x8000 || message.readUInt16BE(4) !== 1) return null
    const asked = readName(message, headerOctets)
    if (asked.name !== question.name.toLowerCase()) return null
    if (message.readUInt16BE(asked.next) !== typeCodes[question.type]) return null
    if (message.readUInt16BE(asked.next + 2) !== internetClass) return null
    if ((flags & 0x0200) !== 0) return { kind: 'truncated' }
    const code = flags & 0x000f
    if (code !== 0 && code !== 3) return { kind: 'failed', code: errorCodes[code] ?? 'EBADRESP' }
    return conclude(readRecords(message, asked.next + 4, question), asked.name, code === 3)
  } catch (error) {
    // Headers that cannot be read are nobody's answer; RangeError is the only thing thrown here.
    if (!(error instanceof RangeError)) throw error
    return message.length < headerOctets ? null : { kind: 'failed', code: 'EBADRESP' }
  }
}

type Sections = {
  readonly aliases: Map<string, { readonly target: string; readonly ttlSeconds: number }>
  readonly found: { readonly owner: string; readonly record: DnsRecord; readonly ttlSeconds: number }[]
  negativeTtlSeconds: number | null
  referred: boolean
}

const readRecords = (message: Buffer, from: number, { type }: DnsQuestion): Sections => {
  const answers = message.readUInt16BE(6)
  const total = answers + message.readUInt16BE(8)
  if (total > recordsReadMax) throw new RangeError('too many records')
  const sections: Sections = { aliases: new Map(), found: [], negativeTtlSeconds: null, referred: false }
  let at = from
  for (let index = 0; index < total; index++) {
    const { name: owner, next } = readName(message, at)
    const recordType = message.readUInt16BE(next)
    const ttl = message.readUInt32BE(next + 4)
    // RFC 2181 §8: a TTL with the top bit set is none.
    const ttlSeconds = ttl > 0x7fffffff ? 0 : ttl
    const dataAt = next + 10
    at = dataAt + message.readUInt16BE(next + 8)
    if (at > message.length) throw new RangeError('data past the end')
    if (message.readUInt16BE(next + 2) !== internetClass) continue
    if (index >= answers) {
      // The last field of an SOA is the negative TTL, capped by the record's own (RFC 2308 §5).
      if (recordType === soaCode)
        sections.negativeTtlSeconds = Math.min(ttlSeconds, message.readUInt32BE(at - 4))
      else if (recordType === nsCode) sections.referred = true
    } else if (recordType === cnameCode) {
      sections.aliases.set(owner, { target: readName(message, dataAt).name, ttlSeconds })
    } else if (recordType === typeCodes[type]) {
      sections.found.push({ owner, record: readData(message, dataAt, at - dataAt, type), ttlSeconds })
    }
  }
  return sections
}

const readData = (message: Buffer, at: number, length: number, type: DnsType): DnsRecord => {
  if (type === 'MX') return { priority: message.readUInt16BE(at), value: readName(message, at + 2).name }
  if (length !== (type === 'A' ? 4 : 16)) throw new RangeError('an address of another length')
  if (type === 'A') return { priority: 0, value: message.subarray(at, at + 4).join('.') }
  const words = Uint16Array.from({ length: 8 }, (_, word) => message.readUInt16BE(at + word * 2))
  return { priority: 0, value: formatIPv6(words) }
}

/** Follows the aliases from the name asked. Records of any other name are ignored: nobody asked for them. */
const conclude = (
  { aliases, found, negativeTtlSeconds, referred }: Sections,
  asked: string,
  noSuchName: boolean,
): DnsResponse => {
  let owner = asked
  let ttlSeconds = 0x7fffffff
  for (let hops = 0; ; hops++) {
    const alias = aliases.get(owner)
    if (alias === undefined) break
    if (hops === aliasesMax) return { kind: 'failed', code: 'EBADRESP' }
    owner = alias.target
    ttlSeconds = Math.min(ttlSeconds, alias.ttlSeconds)
  }
  const mine = found.filter((one) => one.owner === owner)
  if (mine.length > 0) {
    for (const one of mine) ttlSeconds = Math.min(ttlSeconds, one.ttlSeconds)
    return { kind: 'records', records: mine.map(({ record }) => record), ttlSeconds }
  }
  if (noSuchName) return { kind: 'not_found', ttlSeconds: negativeTtlSeconds }
  // A resolver that only forwards may leave the alias's target for us to ask.
  if (owner !== asked && negativeTtlSeconds === null) return { kind: 'alias', name: owner, ttlSeconds }
  // RFC 2308 §2.2: name servers without an SOA refer us elsewhere; the server does not resolve for us, and nothing is known.
  if (referred && negativeTtlSeconds === null) return { kind: 'failed', code: 'EBADRESP' }
  return { kind: 'no_data', ttlSeconds: negativeTtlSeconds }
}

/**
 * The name at an offset, in lower case, without the root's dot; empty for the root itself. Each pointer has to lead
 * strictly before everything read so far, so no arrangement of pointers reads for ever. Octets that stand in no host
 * name come out as `\DDD`, so that nothing in a name can pass for syntax elsewhere.
 */
const readName = (message: Buffer, from: number): { name: string; next: number } => {
  const labels: string[] = []
  let octets = 0
  let at = from
  let lowest = from
  let next = -1
  for (;;) {
    const length = message.readUInt8(at)
    if (length >= 0xc0) {
      if (next < 0) next = at + 2
      at = message.readUInt16BE(at) & 0x3fff
      if (at >= lowest) throw new RangeError('a pointer that does not lead back')
      lowest = at
      continue
    }
    if (length > labelLengthMax) throw new RangeError('an unknown kind of label')
    if (length === 0) return { name: labels.join('.'), next: next < 0 ? at + 1 : next }
    octets += length + 1
    if (octets > nameLengthMax + 1 || at + length >= message.length) throw new RangeError('a name too long')
    labels.push(labelText(message.toString('latin1', at + 1, at + 1 + length)))
    at += length + 1
  }
}

const labelText = (label: string): string =>
  label
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, (octet) => `\\${String(octet.charCodeAt(0)).padStart(3, '0')}`)
