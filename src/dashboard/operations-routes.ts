import type { FastifyInstance } from 'fastify'
import { knownJobs } from '../administration/jobs/jobs.ts'
import { nextRuns } from '../administration/jobs/now.ts'
import { projectionStates } from '../administration/projections/projections.ts'
import { rebuilds } from '../administration/projections/rebuilds.ts'
import { type Dashboard, sendPage, viewerOf } from './page.ts'
import { operationsPage } from './pages/operations.ts'
import { standing } from './rows.ts'

export const operationsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get('/operations', async (request, reply) => {
    const jobs = (await knownJobs(foundation.pool)).filter(({ cron }) => cron !== null)
    const [{ head, states }, findings, lags, listed, next] = await Promise.all([
      projectionStates(foundation),
      context.health.findings(),
      context.health.projectionLags(),
      rebuilds(foundation),
      nextRuns(foundation.url, jobs, Date.now()),
    ])
    const page = operationsPage({
      viewer: viewerOf(request, reply),
      head,
      findings,
      rebuilds: listed,
      states: standing(states, lags),
      jobs: jobs.map((job) => ({ ...job, next: next.get(job.name) ?? null })),
    })
    return sendPage(reply, page)
  })
}
