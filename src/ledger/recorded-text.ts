import { type MicroCredits, parseCredits } from '../billing/money.ts'
import type { LedgerRecord } from '../billing/statement-line.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { currentVersion, type LedgerEvent } from '../events/catalogue.ts'
import type { EventMetadata } from '../events/envelope.ts'

/**
 * What sums over whole ledgers need of an event, from its text: parsing ten million events takes longer than reading them. Where
 * a text is not exactly as this service writes it, it is parsed.
 */

/** No JSON string holds an unescaped quote, so this is the member and nothing that is quoted. */
const effectiveMember = ',"effective_at":"'
const instantLength = 24

/** From the member to the end, as every release writes it: `recorded_at` and the digest come after it. */
const effectiveTail =
  effectiveMember.length +
  instantLength +
  1 +
  ',"recorded_at":""'.length +
  instantLength +
  ',"digest":""}'.length +
  43

export const effectiveAtOf = (recorded: RecordedEvent): string => {
  const { metadata } = recorded
  const usual = metadata.length - effectiveTail
  const at = metadata.startsWith(effectiveMember, usual) ? usual : metadata.indexOf(effectiveMember)
  const start = at + effectiveMember.length
  const end = start + instantLength
  if (at > 0 && metadata[end] === '"' && metadata[end - 1] === 'Z') return metadata.slice(start, end)
  return decodeEvent(recorded).metadata.effective_at
}

const versionStart = '{"schema_version":'

/** What a newer release wrote may mean something else by the same members: it is decoded, which says so. */
const isOfKnownVersion = (newest: number, metadata: string): boolean => {
  const version = metadata.charCodeAt(versionStart.length) - 48
  return (
    version >= 1 &&
    version <= newest &&
    metadata.startsWith(versionStart) &&
    metadata[versionStart.length + 1] === ','
  )
}
const newestCall = currentVersion('KeyUsed')
const newestCharge = currentVersion('CreditCharged')

const chargeIdStart = '{"charge_id":"'
const chargeIdEnd = chargeIdStart.length + 36
const skuStart = '","sku":"'
const amountStart = '","amount":"'

/** The amount of the whole charge, before those of its lines. No JSON string holds an unescaped quote. */
const chargedText = (data: string): string | null => {
  if (!data.startsWith(chargeIdStart) || !data.startsWith(skuStart, chargeIdEnd)) return null
  const skuEnd = data.indexOf('"', chargeIdEnd + skuStart.length)
  const from = skuEnd + amountStart.length
  const end = data.indexOf('"', from)
  return data.startsWith(amountStart, skuEnd) && data.startsWith('","lines":[', end)
    ? data.slice(from, end)
    : null
}

/** Of a `CreditCharged`. */
export const chargedBy = (recorded: RecordedEvent): MicroCredits => {
  const text = isOfKnownVersion(newestCharge, recorded.metadata) ? chargedText(recorded.data) : null
  if (text !== null) return parseCredits(text)
  const { type, data } = decodeEvent(recorded)
  return type === 'CreditCharged' ? parseCredits(data.amount) : 0n
}

/**
 * Metadata with the members in the order in which every release has written them, each text without an escape; null: they are not.
 * The digest is left out.
 */
const metadataOf = (text: string): EventMetadata | null => {
  if (text.includes('\\')) return null
  let at = versionStart.length + 1
  const member = (start: string): string | undefined => {
    if (!text.startsWith(start, at)) return undefined
    const from = at + start.length
    const end = text.indexOf('"', from)
    at = end + 1
    return text.slice(from, end)
  }
  const request_id = member(',"request_id":"')
  const causation_id = member(',"causation_id":"')
  const repeats = member(',"repeats":"')
  const trace_id = member(',"trace_id":"')
  const actor = member(',"actor":"')
  const effective_at = member(effectiveMember)
  const recorded_at = member(',"recorded_at":"')
  member(',"digest":"')
  if (actor === undefined || effective_at === undefined || at !== text.length - 1 || text[at] !== '}')
    return null
  const schema_version = text.charCodeAt(versionStart.length) - 48
  return { schema_version, request_id, causation_id, repeats, trace_id, actor, effective_at, recorded_at }
}

/** What calls have in common with each other is parsed once: all but ids and what was found out. */
const parsed = new Map<string, unknown>()
const parsedMax = 4_096

/** `members`: those of an object, from the first quote on. */
const parsedOnce = (members: string): unknown => {
  const known = parsed.get(members)
  if (known !== undefined) return known
  const value: unknown = JSON.parse(`{${members}}`)
  // A part of a text holds the whole text in memory: what is kept is a copy.
  if (parsed.size < parsedMax) parsed.set(Buffer.from(members).toString(), value)
  return value
}

/** A charge without the lots that paid it: the statement does not tell of them. */
const chargeOf = (data: string): object | null => {
  const end = data.lastIndexOf(',"allocations":[')
  if (!data.startsWith(chargeIdStart) || !data.startsWith(skuStart, chargeIdEnd) || end < chargeIdEnd)
    return null
  const shape = parsedOnce(data.slice(chargeIdEnd + 2, end)) as object
  return { ...shape, charge_id: data.slice(chargeIdStart.length, chargeIdEnd), allocations: [] }
}

const fingerprintMember = ',"request_fingerprint":"'
const fingerprintLength = fingerprintMember.length + 43 + 1

/** A call without its facts, and without the request of an Idempotency-Key, which is last. What is between them is of a few kinds. */
const callOf = (data: string): object | null => {
  const facts = data.indexOf(',"facts":{')
  const fingerprint = data.indexOf(fingerprintMember, facts)
  const end = fingerprint < 0 ? data.length - 1 : fingerprint
  if (facts < 0 || (fingerprint >= 0 && fingerprint + fingerprintLength !== data.length - 1)) return null
  const free = data.lastIndexOf(',"free_by":{')
  const before = data.slice(1, facts)
  return parsedOnce(free < facts ? before : `${before}${data.slice(free, end)}`) as object
}

const quickOf = ({ type, data, metadata }: RecordedEvent): object | null => {
  if (type === 'KeyUsed') return isOfKnownVersion(newestCall, metadata) ? callOf(data) : null
  return type === 'CreditCharged' && isOfKnownVersion(newestCharge, metadata) ? chargeOf(data) : null
}

/** An event, of calls and charges only what a statement says of them. */
export const recordOf = (recorded: RecordedEvent): LedgerRecord => {
  const { type, revision, id: eventId } = recorded
  const quick = quickOf(recorded)
  const metadata = quick === null ? null : metadataOf(recorded.metadata)
  if (quick !== null && metadata !== null)
    return { type, data: quick, metadata, revision, eventId } as LedgerRecord
  const decoded = decodeEvent(recorded)
  return {
    type: decoded.type,
    data: decoded.data,
    metadata: decoded.metadata,
    revision,
    eventId,
  } as LedgerEvent & LedgerRecord
}
