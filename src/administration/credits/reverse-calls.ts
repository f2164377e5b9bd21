import { type MicroCredits, parseCredits } from '../../billing/money.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { requestIdOf } from '../fields.ts'
import { InputFault } from '../input.ts'
import { CallNotFound, refund } from './refunds.ts'

/**
 * Refunds calls whose callers never received an answer. A process that stops logs the request ids of these calls. Free calls are
 * skipped, and a repeated command refunds nothing more.
 */

/** The names of the members are those in JSON. */
type ReversedCall = { readonly request_id: string } & (
  | { readonly reversed: true; readonly organization_id: string; readonly amount: string }
  | { readonly reversed: false; readonly why: string }
)

const notRecorded =
  'not recorded. A pending append may still record the call: run the command with the same ids again when the event log answers'

const requestsMax = 10_000

/** The request ids in a string, one per line. Throws an `InputFault` that names the faulty line. */
export const requestIdsIn = (text: string): string[] => {
  const ids = text
    .split('\n')
    .flatMap((line, n) => (line.trim() === '' ? [] : requestIdOf('requests', line, `line ${n + 1}: `)))
  const unique = [...new Set(ids)]
  if (unique.length === 0 || unique.length > requestsMax)
    throw new InputFault('requests', `${unique.length} request ids; the file must have 1 to ${requestsMax}`)
  return unique
}

/**
 * Throws the errors of `refund`, except for calls with nothing to refund. The read models must have caught up. `pending` is the number of
 * calls that are not recorded, but may be recorded later.
 */
export const reverseCalls = async (
  foundation: Pick<Foundation, 'eventLog' | 'ledger' | 'pool'>,
  {
    requestIds,
    onProgress,
    ...asked
  }: {
    readonly requestIds: readonly string[]
    readonly actor: string
    readonly dryRun: boolean
    readonly onProgress: (calls: number) => void
  },
): Promise<{
  readonly calls: readonly ReversedCall[]
  readonly total: MicroCredits
  readonly pending: number
}> => {
  const calls: ReversedCall[] = []
  let [total, pending] = [0n, 0]
  for (const requestId of requestIds) {
    const reason = 'the outcome of the call was not known in time'
    try {
      const { organizationId, adjusted } = await refund(foundation, { ...asked, requestId, reason })
      const done = { organization_id: organizationId, amount: adjusted.amount }
      calls.push({ request_id: requestId, reversed: true, ...done })
      total += parseCredits(adjusted.amount)
    } catch (error) {
      if (!(error instanceof CommandRefused)) throw error
      const isMissing = error instanceof CallNotFound
      if (isMissing) pending++
      calls.push({ request_id: requestId, reversed: false, why: isMissing ? notRecorded : error.message })
    }
    onProgress(calls.length)
  }
  return { calls, total, pending }
}
