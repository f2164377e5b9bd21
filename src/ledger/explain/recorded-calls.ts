import { lastOf } from '../../event-log/append-chained.ts'
import type { EventLog, RecordedEvent } from '../../event-log/port.ts'
import { pagesOf } from '../../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../../event-log/stored-event.ts'
import { ledgerStream } from '../../events/streams.ts'

const pageMax = 4_000
/** The maximum time between a call and its record, including differences between clocks. In practice, it is much shorter. */
const slackMs = 60 * 60 * 1_000

type CallRecorded = Extract<DecodedEvent, { type: 'KeyUsed' }>

/**
 * An organization's calls in a time range, oldest first, in pages. Only this part of the ledger is read. Refused calls that were only
 * counted are not included.
 */
export async function* recordedCalls(
  eventLog: EventLog,
  organizationId: string,
  { fromMs, untilMs }: { readonly fromMs: number; readonly untilMs: number },
): AsyncGenerator<readonly CallRecorded[]> {
  const from = await firstRevisionFor(eventLog, organizationId, fromMs)
  if (from === null) return
  for await (const page of pagesOf(eventLog, ledgerStream(organizationId), { from, pageMax, whole: true })) {
    yield page
      .filter(({ type }) => type === 'KeyUsed')
      .map(decodeEvent)
      .filter((event): event is CallRecorded => event.type === 'KeyUsed')
      .filter(({ metadata }) => {
        const atMs = Date.parse(metadata.effective_at)
        return atMs >= fromMs && atMs < untilMs
      })
    if ((page.at(-1)?.recordedAtMs ?? 0) > untilMs + slackMs) return
  }
}

/**
 * The pages that contain the calls in a time range. The newest page comes first, but each page is in ledger order. Events after the
 * revision `before` are not included.
 */
export async function* recordedBackwards(
  eventLog: EventLog,
  organizationId: string,
  { fromMs, untilMs, before }: { fromMs: number; untilMs: number; before: number | null },
): AsyncGenerator<readonly RecordedEvent[]> {
  const stream = ledgerStream(organizationId)
  const last = await lastOf(eventLog, stream)
  if (last === null) return
  const after = await firstRevisionFor(eventLog, organizationId, untilMs + 2 * slackMs)
  let from = Math.min(last.revision, after ?? last.revision, before ?? last.revision)
  while (from >= 0) {
    const page = await eventLog.read(stream, { from, direction: 'backwards', max: pageMax })
    yield page.toReversed()
    const oldest = page.at(-1)
    if (oldest === undefined || oldest.recordedAtMs < fromMs - slackMs) return
    from = oldest.revision - 1
  }
}

/**
 * A revision at or after which all calls since an instant are recorded, or null if the ledger contains no such calls.
 */
export const firstRevisionFor = async (
  eventLog: EventLog,
  organizationId: string,
  fromMs: number,
): Promise<number | null> => {
  const stream = ledgerStream(organizationId)
  const last = await lastOf(eventLog, stream)
  if (last === null || last.recordedAtMs < fromMs - slackMs) return null
  return firstRecordedFrom(eventLog, stream, { fromMs: fromMs - slackMs, last: last.revision })
}

/** Finds the first revision recorded at or after an instant. Uses binary search, because recording times never decrease. */
const firstRecordedFrom = async (
  eventLog: EventLog,
  stream: string,
  { fromMs, last }: { fromMs: number; last: number },
): Promise<number> => {
  let [low, high] = [0, last]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const [event] = await eventLog.read(stream, { from: middle, max: 1 })
    if (event !== undefined && event.recordedAtMs < fromMs) low = middle + 1
    else high = middle
  }
  return low
}
