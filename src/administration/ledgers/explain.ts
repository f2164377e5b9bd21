import { organizationsOfRequest } from '../../../projections/ledger-index.ts'
import { priceBookOf } from '../../billing/price-book.ts'
import { standingBooks } from '../../billing/prices.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { StreamMissing } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { type CallEvidence, FarBehind, findCall, findCallInAll } from '../../ledger/explain/call-evidence.ts'
import { type Explanation, explain } from '../../ledger/explain/explanation.ts'
import { readPricesAsTheyAre } from '../../ledger/prices/price-stream.ts'
import { requestIdOf } from '../fields.ts'
import { organizationsOf } from './ledgers.ts'

/** The maximum number of organizations that are searched. A request id belongs to one organization, so only faulty rows name more. */
const organizationsMax = 10

/** The maximum number of events after the read models' position that are read for a page. Commands can read the whole ledger. */
const tailMax = 5_000
const commandTailMax = 50_000

type Question = {
  readonly requestId: string
  /** Undefined if the call can belong to any organization. */
  readonly organizationId?: string | undefined
  /** Reads the whole ledger and does not use the read models. */
  readonly whole?: boolean
  /** Reads at most `tailMax` events, for a page that a person waits for. */
  readonly bounded?: boolean
  readonly onProgress?: (organizationId: string, events: number) => void
}

/**
 * Explains one call. The read models locate the call. For a call that is missing from them, ledgers are read, if necessary from the
 * start. Throws `InputFault` if the text is not a request id, and `CommandRefused` if no ledger contains the call.
 */
export const explainCall = async (foundation: Foundation, question: Question): Promise<Explanation> => {
  const requestId = requestIdOf('request', question.requestId)
  const evidence = await evidenceOf(foundation, { ...question, requestId })
  if (evidence === null) throw new CommandRefused(notFound(requestId, question.organizationId))
  const { prices } = await readPricesAsTheyAre(foundation.eventLog)
  const books = standingBooks(prices).map(priceBookOf)
  return explain(evidence, requestId, { ...foundation, books })
}

const notFound = (requestId: string, organizationId: string | undefined): string =>
  `${organizationId === undefined ? 'no ledger contains' : `the ledger of ${organizationId} does not contain`} an individual record of a call with the request id ${requestId}. ` +
  'Requests without a valid key are only in the service log. Calls refused by a rate limit are in the ledger as one count per key, policy and minute (RateLimitExceeded), ' +
  'and refusals beyond the first 60 of a key and minute as one per code (CallsRefused)'

const evidenceOf = async (
  foundation: Foundation,
  { requestId, organizationId: asked, whole = false, bounded = false, onProgress }: Question,
): Promise<CallEvidence | null> => {
  const told = asked === undefined ? await organizationsByRows(foundation, requestId) : [asked]
  const candidates = told.length > 0 ? told : await organizationsOf(foundation)
  if (!whole)
    for (const organizationId of candidates) {
      const found = await findCall(foundation, {
        organizationId,
        requestId,
        tailMax: bounded ? tailMax : commandTailMax,
      }).catch((error: unknown) => {
        if (error instanceof FarBehind && !bounded) return null
        throw error
      })
      if (found !== null) return found
    }
  for (const organizationId of bounded ? [] : candidates) {
    const found = await findCallInAll(foundation.eventLog, { organizationId, requestId }, (events) =>
      onProgress?.(organizationId, events),
    ).catch((error: unknown) => {
      if (error instanceof StreamMissing) return null
      throw error
    })
    if (found !== null) return found
  }
  return null
}

const organizationsByRows = async ({ pool }: Foundation, requestId: string): Promise<string[]> => {
  const rows = await rowsOf(pool, organizationsOfRequest(requestId, organizationsMax))
  return rows.map(({ organization_id }) => organization_id)
}
