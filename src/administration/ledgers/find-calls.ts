import type { InputVerdict } from '../../call/capability.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { RecordedCall } from '../../ledger/explain/call-evidence.ts'
import { recordedBackwards } from '../../ledger/explain/recorded-calls.ts'
import type { Operator } from '../operator.ts'
import { recordOperation } from '../operator-events.ts'
import { missingLedger } from './ledgers.ts'

/** Finds an organization's calls about a person. Reads the event log, because rows contain no hashes of inputs. */

/** A search stops after this many events, because a person is waiting for the result. */
const lookedAtMax = 20_000
const foundMax = 500
/** The maximum number of concurrent verdicts. Each can read the stream of a person. */
const verdictsMax = 8

type Searched = {
  readonly organizationId: string
  readonly from: string
  readonly to: string
  readonly before: number | null
}

/** Records the search for the audit, then searches. Throws `CommandRefused` if the organization has no ledger. */
export const callsAbout = async (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { organizationId, from, to, before }: Searched,
  recognize: (facts: CallFacts) => Promise<InputVerdict | null>,
  { actor }: Operator,
) => {
  if ((await eventLog.lastRevision(ledgerStream(organizationId))) === null)
    throw missingLedger(organizationId)
  const data = { organization_id: organizationId, from, to }
  await recordOperation(eventLog, { type: 'CallsSearched', data }, { actor })
  const calls: ReturnType<typeof lineOf>[] = []
  let [lookedAt, untold] = [0, 0]
  let next: number | null = null
  let later: readonly RecordedEvent[] = []
  const range = { fromMs: Date.parse(from), untilMs: Date.parse(to), before }
  for await (const page of recordedBackwards(eventLog, organizationId, range)) {
    // The charge for the last call in a page can be the first event of the next page, which is in `later`.
    const events = [...page, ...later]
    const within = page.flatMap((recorded, i) => {
      if (recorded.type !== 'KeyUsed' || recorded.revision >= (before ?? Number.POSITIVE_INFINITY)) return []
      const call = decodeEvent(recorded)
      const { effective_at: at } = call.metadata
      return call.type === 'KeyUsed' && at >= from && at < to ? [{ call, next: events[i + 1] }] : []
    })
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
  return {
    /** Newest first. */
    calls,
    events_looked_at: lookedAt,
    /** The number of calls that cannot be compared, because the person was erased or the call's input was not recorded. */
    cannot_be_told: untold,
    /** The events before this revision were not searched; null if the whole range was searched. */
    next_before: next,
  }
}

const lineOf = ({ call: { data, metadata, recorded }, next }: Met) => {
  const charge = next?.type === 'CreditCharged' ? decodeEvent(next) : null
  const isIts = charge?.type === 'CreditCharged' && charge.metadata.causation_id === recorded.id
  return {
    at: metadata.effective_at,
    request_id: metadata.request_id ?? '',
    capability: data.capability,
    outcome: data.outcome,
    charged: isIts ? charge.data.amount : '0',
  }
}

type Met = { readonly call: RecordedCall['call']; readonly next: RecordedEvent | undefined }
