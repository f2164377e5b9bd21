import type { FastifyInstance } from 'fastify'
import { explainCall } from '../administration/explain.ts'
import { InputFault } from '../administration/input.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { accountAt, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { callPage } from './pages/call.ts'

type CallParams = { Params: { organization: string; request: string } }

/** One call, explained. */
export const callRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<CallParams>('/organizations/:organization/calls/:request', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const { organization_id: organizationId } = account
    const call = await explainCall(context.foundation, {
      requestId: request.params.request,
      organizationId,
      bounded: true,
    }).catch((error: unknown) => {
      if (error instanceof InputFault || error instanceof CommandRefused) throw new PageMissing()
      throw error
    })
    return sendPage(reply, callPage({ viewer: viewerOf(request, reply), account, call }))
  })
}
