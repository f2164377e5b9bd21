import { type MicroCredits, parseCredits } from '../billing/money.ts'
import type { LedgerRecord } from '../billing/statement-line.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import { decodeEvent } from '../event-log/stored-event.ts'
import { currentVersion, isEventType, type LedgerEvent } from '../events/catalogue.ts'
import type { EventMetadata } from '../events/envelope.ts'

/**
 * What sums over whole ledgers need of an event, from its text: parsing ten million events takes longer than reading them. Where
 * a text is not exactly as this service writes it, it is parsed.
 */

/** No JSON string holds an unescaped quote, so this is the member and nothing that is quoted. */
const effectiveMember = ',"effective_at":"'
const instantLength = 24

export const effectiveAtOf = (recorded: RecordedEvent): string => {
  const { metadata } = recorded
  const at = metadata.indexOf(effectiveMember)
  const start = at + effectiveMember.length
  const end = start + instantLength
  if (at > 0 && metadata[end] === '"' && metadata[end - 1] === 'Z') return metadata.slice(start, end)
  return decodeEvent(recorded).metadata.effective_at
}

const versionStart = '{"schema_version":'

/** What a newer release wrote may mean something else by the same members: it is decoded, which says so. */
const isOfKnownVersion = ({ type, metadata }: RecordedEvent): boolean => {
  const version = metadata.charCodeAt(versionStart.length) - 48
  return (
    isEventType(type) &&
    version >= 1 &&
    version <= currentVersion(type) &&
    metadata.startsWith(versionStart) &&
    metadata[versionStart.length + 1] === ','
  )
}

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
  const text = isOfKnownVersion(recorded) ? chargeStart.exec(recorded.data)?.[1] : undefined
  if (text !== undefined) return amountOf(text)
  const { type, data } = decodeEvent(recorded)
  return type === 'CreditCharged' ? parseCredits(data.amount) : 0n
}

/** Members in the order in which every release has written them, each text without an escape. */
const metadataText =
  /^\{"schema_version":(\d{1,9})(?:,"request_id":"([^"\\]*)")?(?:,"causation_id":"([^"\\]*)")?(?:,"trace_id":"([^"\\]*)")?,"actor":"([^"\\]*)","effective_at":"([^"\\]*)"(?:,"recorded_at":"([^"\\]*)")?(?:,"digest":"[^"\\]*")?\}$/

const metadataOf = (text: string): EventMetadata | null => {
  const found = metadataText.exec(text)
  if (found === null) return null
  const [, version, request_id, causation_id, trace_id, actor = '', effective_at = '', recorded_at] = found
  return {
    schema_version: Number(version),
    ...(request_id === undefined ? {} : { request_id }),
    ...(causation_id === undefined ? {} : { causation_id }),
    ...(trace_id === undefined ? {} : { trace_id }),
    actor,
    effective_at,
    ...(recorded_at === undefined ? {} : { recorded_at }),
  }
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

/** An event, of calls and charges only what a statement says of them. */
export const recordOf = (recorded: RecordedEvent): LedgerRecord => {
  const { type, revision, id: eventId } = recorded
  const quick = isOfKnownVersion(recorded)
    ? type === 'KeyUsed'
      ? callOf(recorded.data)
      : type === 'CreditCharged'
        ? chargeOf(recorded.data)
        : null
    : null
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
