import { randomUUID } from 'node:crypto'
import type { InputVerdict } from '../../call/capability.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { callsIn, type RecordedCall } from '../../ledger/explain/call-evidence.ts'
import { recordedBackwards } from '../../ledger/explain/recorded-calls.ts'
import type { Operator } from '../operator.ts'
import { recordOperation } from '../operator-events.ts'
import { missingLedger } from './ledgers.ts'

/** The calls of an organization that were about a person, from the event log: no row has the hashes of inputs. */

/** Per search, whole pages of the ledger: a person waits for it. */
const lookedAtMax = 50_000
const foundMax = 500
/** Concurrent verdicts, which may each read the stream of a person. */
const verdictsMax = 8

export type CallsAbout = {
  /** Newest first. */
  readonly calls: readonly {
    readonly at: string
    readonly request_id: string
    readonly capability: string
    readonly outcome: string
    readonly charged: string
  }[]
  readonly events_looked_at: number
  /** Calls about a person who cannot be compared: erased, or not recorded. */
  readonly cannot_be_told: number
  /** Events below this revision were not looked at; null: the range is complete. */
  readonly next_before: number | null
}

type Searched = {
  readonly organizationId: string
  readonly from: string
  readonly to: string
  readonly before: number | null
}

/** Records the search for the audit, then searches. Throws `CommandRefused` if there is no such ledger. */
export const callsAbout = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, from, to, before }: Searched,
  recognize: (facts: CallFacts) => Promise<InputVerdict | null>,
  { actor }: Operator,
): Promise<CallsAbout> => {
  if ((await eventLog.lastRevision(ledgerStream(organizationId))) === null)
    throw missingLedger(organizationId)
  const data = { organization_id: organizationId, from, to }
  await recordOperation(eventLog, { type: 'CallsSearched', data }, { actor, once: randomUUID() })
  const calls: CallsAbout['calls'][number][] = []
  let [lookedAt, untold] = [0, 0]
  let next: number | null = null
  let later: readonly RecordedEvent[] = []
  const range = { fromMs: Date.parse(from), untilMs: Date.parse(to), before }
  for await (const page of recordedBackwards(eventLog, organizationId, range)) {
    // The charge of a page's last call may be the first event of the page after it, which was read before.
    const within = callsAmong([...page, ...later], page.length).filter(
      ({ call: { recorded, metadata } }) =>
        recorded.revision < (before ?? Number.POSITIVE_INFINITY) &&
        metadata.effective_at >= from &&
        metadata.effective_at < to,
    )
    const verdicts: (InputVerdict | null)[] = []
    for (let i = 0; i < within.length; i += verdictsMax) {
      const some = within.slice(i, i + verdictsMax)
      verdicts.push(...(await Promise.all(some.map(({ call }) => recognize(call.data.facts)))))
    }
    calls.push(
      ...within
        .filter((_, i) => verdicts[i]?.verdict === 'yes')
        .map(lineOf)
        .reverse(),
    )
    untold += verdicts.filter((one) => one?.verdict === 'cannot_be_told').length
    lookedAt += page.length
    later = page.slice(0, 1)
    const oldest = later[0]?.revision ?? 0
    if (oldest > 0 && (lookedAt >= lookedAtMax || calls.length >= foundMax)) {
      next = oldest
      break
    }
  }
  return { calls, events_looked_at: lookedAt, cannot_be_told: untold, next_before: next }
}

/** The calls among the first `count` of events that follow each other, each with its charge. */
const callsAmong = (events: readonly RecordedEvent[], count: number): RecordedCall[] =>
  events.slice(0, count).flatMap((recorded, i) => {
    if (recorded.type !== 'KeyUsed') return []
    const { request_id: requestId } = decodeEvent(recorded).metadata
    return requestId === undefined ? [] : callsIn(events.slice(i, i + 2), requestId).slice(0, 1)
  })

const lineOf = ({ call, charge }: RecordedCall): CallsAbout['calls'][number] => ({
  at: call.metadata.effective_at,
  request_id: call.metadata.request_id ?? '',
  capability: call.data.capability,
  outcome: call.data.outcome,
  charged: charge?.data.amount ?? '0',
})
