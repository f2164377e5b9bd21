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

/** `charge_id` and `sku`, and the amount of the whole charge before its lines. */
const chargeStart =
  /^\{"charge_id":"[0-9a-f-]{36}","sku":"[a-z0-9_.]{1,64}","amount":"([0-9.]{1,25})","lines":\[/

/** Prices are few. */
const amounts = new Map<string, MicroCredits>()
const amountsMax = 4_096

const amountOf = (text: string): MicroCredits => {
  const known = amounts.get(text)
  if (known !== undefined) return known
  const amount = parseCredits(text)
  if (amounts.size < amountsMax) amounts.set(text, amount)
  return amount
}

/** Of a `CreditCharged`. */
export const chargedBy = (recorded: RecordedEvent): MicroCredits => {
  const text = isOfKnownVersion(newestCharge, recorded.metadata)
    ? chargeStart.exec(recorded.data)?.[1]
    : undefined
  if (text !== undefined) return amountOf(text)
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

const parsedOnce = (text: string): unknown => {
  const known = parsed.get(text)
  if (known !== undefined) return known
  const value: unknown = JSON.parse(text)
  if (parsed.size < parsedMax) parsed.set(text, value)
  return value
}

const chargeIdStart = '{"charge_id":"'
const chargeIdEnd = chargeIdStart.length + 36

/** A charge without the lots that paid it: the statement does not tell of them. */
const chargeOf = (data: string): object | null => {
  const end = data.lastIndexOf(',"allocations":[')
  if (!data.startsWith(chargeIdStart) || !data.startsWith('","sku":"', chargeIdEnd) || end < chargeIdEnd)
    return null
  const shape = parsedOnce(`{${data.slice(chargeIdEnd + 2, end)}}`) as object
  return { ...shape, charge_id: data.slice(chargeIdStart.length, chargeIdEnd), allocations: [] }
}

/** A call without its facts. What follows them is of a few kinds, unless it names the request of an Idempotency-Key. */
const callOf = (data: string): object | null => {
  const facts = data.indexOf(',"facts":{')
  if (facts < 0 || data.includes(',"request_fingerprint":')) return null
  const free = data.lastIndexOf(',"free_by":{')
  return parsedOnce(`${data.slice(0, facts)}${free < facts ? '}' : data.slice(free)}`) as object
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
