import type { FastifyInstance } from 'fastify'
import { projections } from '../../projections/index.ts'
import { knownJobs } from '../administration/jobs/jobs.ts'
import { nextRuns } from '../administration/jobs/now.ts'
import { parkedEvents } from '../administration/projections/parked.ts'
import { projectionStates } from '../administration/projections/projections.ts'
import { rebuilds } from '../administration/projections/rebuilds.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { operationsPage } from './pages/operations.ts'
import { projectionPage } from './pages/projection.ts'
import { standing } from './rows.ts'

/** Projections and jobs: their state. */

type ProjectionParams = { Params: { projection: string } }

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
  pages.get<ProjectionParams>('/operations/projections/:projection', async (request, reply) => {
    const projection = projections.find(({ name }) => name === request.params.projection)
    if (projection === undefined) throw new PageMissing()
    const [{ head, states }, listed, parked] = await Promise.all([
      projectionStates(foundation),
      rebuilds(foundation),
      parkedEvents(foundation, projection.name),
    ])
    const state = states.find(({ name }) => name === projection.name)
    if (state === undefined) throw new PageMissing()
    const running = listed.find((one) => one.state === 'running' && one.projections.includes(projection.name))
    const mayRelease = !projection.money && projection.guards !== true
    const viewer = viewerOf(request, reply)
    return sendPage(reply, projectionPage({ viewer, head, state, running, parked, mayRelease }))
  })
}
