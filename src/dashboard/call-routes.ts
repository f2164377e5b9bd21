import type { FastifyInstance } from 'fastify'
import { neighbourCall } from '../../projections/statement-lines.ts'
import { InputFault } from '../administration/input.ts'
import { explainCall } from '../administration/ledgers/explain.ts'
import { receiptOf } from '../event-log/tree/receipt.ts'
import { ledgerStream } from '../events/streams.ts'
import type { Explanation } from '../ledger/explain/explanation.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { accountAt, type CallParams, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { callPage } from './pages/call.ts'
import { linesOfRequest, rowsOf } from './queries.ts'

const linesMax = 10

/** Throws `PageMissing` if the organization's ledger has no call with that id. */
const explainedCall = (
  { foundation }: Dashboard,
  { organization, request }: CallParams['Params'],
): Promise<Explanation> =>
  explainCall(foundation, { requestId: request, organizationId: organization, bounded: true }).catch(
    (error: unknown) => {
      if (error instanceof InputFault || error instanceof CommandRefused) throw new PageMissing()
      throw error
    },
  )

/** The page of one call, and the receipt for the call. */
export const callRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get<CallParams>('/organizations/:organization/calls/:request', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const call = await explainedCall(context, request.params)
    const { organization_id: id } = account
    const { request_id: requestId } = call
    const revision = call.events[0]?.revision ?? 0
    const neighbour = async (side: 'before' | 'after'): Promise<string | null> => {
      const [one] = await rowsOf(foundation.pool, neighbourCall(id, { revision, requestId, side }))
      return one?.request_id ?? null
    }
    const [lines, previous, next] = await Promise.all([
      rowsOf(foundation.pool, linesOfRequest(id, { requestId, max: linesMax })),
      neighbour('before'),
      neighbour('after'),
    ])
    // Lines are ordered newest first, and a failed call can have a second, later line.
    const line = lines.at(-1) ?? null
    const viewer = viewerOf(request, reply)
    return sendPage(reply, callPage({ viewer, account, call, line, previous, next }))
  })

  pages.get<CallParams>(
    '/organizations/:organization/calls/:request/receipt.json',
    async (request, reply) => {
      const { organization_id: id } = await accountAt(context, request.params.organization)
      const call = await explainedCall(context, request.params)
      const [first] = call.events
      const receipt =
        first === undefined
          ? null
          : await receiptOf(foundation, {
              stream: ledgerStream(id),
              revision: first.revision,
              requestId: call.request_id,
            })
      if (receipt === null) throw new PageMissing()
      return reply
        .type('application/json; charset=utf-8')
        .header('cache-control', 'no-store')
        .header('content-disposition', `attachment; filename="receipt-${call.request_id}.json"`)
        .send(`${JSON.stringify(receipt, null, 2)}\n`)
    },
  )
}
