import { callsOfRequest, lastLineOf } from '../../projections/statement-lines.ts'
import type { RecordedEvent } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { firstInLedger, isOfRequest, ledgerEventAt } from '../ledger/read-ledger.ts'
import { InputFault } from './input.ts'

/** Where a call is: its `KeyUsed`, as the log itself holds it, and whether a charge follows it. */
type FoundCall = {
  readonly organizationId: string
  readonly recorded: RecordedEvent
  readonly charged: boolean
}

type Log = Pick<Foundation, 'eventLog'>

const requestIdForm = /^[0-9A-HJKMNP-TV-Z]{26}$/

/**
 * Finds a call by its request id, of any organization or of one. A call that broke may be recorded a second time, as that: of
 * several it is the one that was charged. The statement's row says where to look and is believed no further: the events read
 * there decide. Where rows do not lead to a charge, the ledger of the organization that was named is read, from the end of its
 * statement on and then from its start.
 *
 * Throws `InputFault` for what is no request id, `CommandRefused` where there is no such call.
 */
export const findCall = async (
  { eventLog, pool }: Pick<Foundation, 'eventLog' | 'pool'>,
  { requestId, organizationId }: { requestId: string; organizationId?: string | undefined },
): Promise<FoundCall> => {
  if (!requestIdForm.test(requestId))
    throw new InputFault(
      'request',
      `"${requestId}" is no request id: 26 characters, as X-Request-Id has them, such as 01M7YKBQZN92PN3ABTVNQE6E12`,
    )
  const places = callsOfRequest(requestId, organizationId ?? null)
  const { rows } = await pool.query<{ organization_id: string; revision: string }>(places.text, [
    ...places.values,
  ])
  let found: FoundCall | null = null
  for (const { organization_id, revision } of rows) {
    const there = await callAt(
      { eventLog },
      { organizationId: organization_id, requestId, revision: Number(revision) },
    )
    if (there?.charged) return there
    found ??= there
  }
  if (organizationId === undefined) {
    if (found !== null) return found
    throw new CommandRefused(
      `no statement has a call with the request id ${requestId}; with --org ORGANIZATION that ledger itself is read for it`,
    )
  }
  const last = lastLineOf(organizationId)
  const [line] = (await pool.query<{ revision: string | null }>(last.text, [...last.values])).rows
  const from = line?.revision == null ? 0 : Number(line.revision) + 1
  const read =
    (await readFor({ eventLog }, { organizationId, requestId, from })) ??
    found ??
    (await readFor({ eventLog }, { organizationId, requestId, before: from }))
  if (read === null)
    throw new CommandRefused(`the ledger of ${organizationId} holds no call with the request id ${requestId}`)
  return read
}

type Wanted = { readonly organizationId: string; readonly requestId: string }

const callAt = async (
  { eventLog }: Log,
  { organizationId, requestId, revision }: Wanted & { revision: number },
): Promise<FoundCall | null> => {
  const recorded = await ledgerEventAt(eventLog, organizationId, revision)
  if (recorded === null || !isOfRequest(recorded, 'KeyUsed', requestId)) return null
  const next = await ledgerEventAt(eventLog, organizationId, revision + 1)
  const charged = next !== null && isOfRequest(next, 'CreditCharged', requestId)
  return { organizationId, recorded, charged }
}

/** Reads a part of a ledger for a call that was charged, and for one at all. */
const readFor = async (
  { eventLog }: Log,
  { organizationId, requestId, ...range }: Wanted & { from?: number; before?: number },
): Promise<FoundCall | null> => {
  let free: RecordedEvent | null = null
  const fits = (recorded: RecordedEvent): boolean => {
    if (isOfRequest(recorded, 'KeyUsed', requestId)) free ??= recorded
    return isOfRequest(recorded, 'CreditCharged', requestId)
  }
  const charge = await firstInLedger(eventLog, organizationId, { ...range, fits })
  if (charge !== null)
    return callAt({ eventLog }, { organizationId, requestId, revision: charge.revision - 1 })
  return free === null ? null : { organizationId, recorded: free, charged: false }
}
