import { hostname } from 'node:os'
import type { FastifyInstance } from 'fastify'
import { lastImportOf } from '../administration/sources/imports.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { type Dashboard, sendPage, viewerOf } from './page.ts'
import { dataPage } from './pages/data.ts'

/** If the rows of the audit have stopped, the audit's own page reports it. */
const notKnown = (error: unknown): null => {
  if (error instanceof CommandRefused) return null
  throw error
}

/** The data behind the answers. */
export const dataRoutes = (pages: FastifyInstance, { foundation, dataSources }: Dashboard): void => {
  pages.get('/operations/data', async (request, reply) => {
    const [{ sources, faults }, companies, profiles] = await Promise.all([
      dataSources(),
      lastImportOf(foundation, 'companies').catch(notKnown),
      lastImportOf(foundation, 'profiles').catch(notKnown),
    ])
    const viewer = viewerOf(request, reply)
    const view = { viewer, sources, faults, imports: { companies, profiles } }
    return sendPage(reply, dataPage({ ...view, host: hostname(), nowMs: Date.now() }))
  })
}
