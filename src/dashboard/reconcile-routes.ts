import type { FastifyInstance } from 'fastify'
import { lastReconciliation } from '../administration/ledgers/reconciliations.ts'
import { type Dashboard, sendPage, viewerOf } from './page.ts'
import { reconcilePage } from './pages/reconcile.ts'

/** The last comparison of log, read models and tariff. */
export const reconcileRoutes = (pages: FastifyInstance, { foundation }: Dashboard): void => {
  pages.get('/reconcile', async (request, reply) => {
    const last = await lastReconciliation(foundation.eventLog)
    return sendPage(reply, reconcilePage({ viewer: viewerOf(request, reply), last }))
  })
}
