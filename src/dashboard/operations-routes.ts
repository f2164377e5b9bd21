import type { FastifyInstance, FastifyRequest } from 'fastify'
import { projections } from '../../projections/index.ts'
import type { Projection } from '../../projections/projection.ts'
import { InputFault, labelOf } from '../administration/input.ts'
import { type JobRow, knownJobs } from '../administration/jobs/jobs.ts'
import { provedOperator } from '../administration/operator.ts'
import { parkedEvents, releaseParked, retryParked } from '../administration/projections/parked.ts'
import { projectionStates } from '../administration/projections/projections.ts'
import {
  cancelRebuilds,
  type RebuildAsked,
  rebuild,
  rebuilds,
} from '../administration/projections/rebuilds.ts'
import { nextRuns, runNow } from '../jobs/now.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import type { Form } from './form.ts'
import { count } from './format.ts'
import { attemptOnce, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import type { FormFault } from './pages/layout.ts'
import { jobEndedPage, operationsPage } from './pages/operations.ts'
import { projectionPage, retriedPage } from './pages/projection.ts'
import { standing } from './rows.ts'
import { begin } from './work-routes.ts'

/** Projections and jobs: their state, and a person's actions on them. */

type ProjectionParams = { Params: { projection: string } }
type JobParams = { Params: { job: string } }

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
  jobRoutes(pages, context)
  projectionRoutes(pages, context)
}

const jobRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger } = context
  pages.post<JobParams>('/operations/jobs/:job/run', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const job = (await knownJobs(foundation.pool)).find(({ name }) => name === request.params.job)
    if (job === undefined) throw new PageMissing()
    const outcome = await attemptOnce(context, request, async (): Promise<JobRow> => {
      if (job.cron === null) throw new CommandRefused(`${job.name} is done when the service asks for it`)
      return job
    })
    if ('fault' in outcome) throw new CommandRefused(outcome.fault.message)
    return begin(context, reply, {
      key: `job/${viewer.once}`,
      title: `Running ${job.name}`,
      run: async (progress) => {
        const ended = await runNow(foundation, {
          job,
          logger,
          ...provedOperator(viewer.user),
          onProgress: ({ state, seconds }) => progress(`${state.replaceAll('_', ' ')}, ${seconds} s`),
        })
        return { page: (of) => jobEndedPage({ viewer: of, job: job.name, ended }) }
      },
    })
  })
}

const named = (name: string): Projection => {
  const projection = projections.find((one) => one.name === name)
  if (projection === undefined) throw new PageMissing()
  return projection
}

const reasonIn = (form: Form): string => labelOf('reason', form.text('reason'))

const progressOf =
  (progress: (text: string) => void): RebuildAsked['onProgress'] =>
  ({ position, target, events, elapsedMs }) => {
    const perSecond = Math.round((events * 1_000) / Math.max(1, elapsedMs))
    progress(`Position ${count(position)} of ${count(target)}, ${count(perSecond)} events a second.`)
  }

const path = '/operations/projections/:projection'

const shownOf = async (
  { foundation }: Dashboard,
  request: FastifyRequest<ProjectionParams>,
  { viewer, fault }: { viewer: ReturnType<typeof viewerOf>; fault: FormFault | null },
) => {
  const projection = named(request.params.projection)
  const [{ head, states }, listed, parked] = await Promise.all([
    projectionStates(foundation),
    rebuilds(foundation),
    parkedEvents(foundation, projection.name),
  ])
  const state = states.find(({ name }) => name === projection.name)
  if (state === undefined) throw new PageMissing()
  const running = listed.find((one) => one.state === 'running' && one.projections.includes(projection.name))
  const mayRelease = !projection.money && projection.guards !== true
  return projectionPage({ viewer, head, state, running, parked, mayRelease, fault })
}

const projectionRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<ProjectionParams>(path, async (request, reply) =>
    sendPage(reply, await shownOf(context, request, { viewer: viewerOf(request, reply), fault: null })),
  )
  for (const [name, act] of Object.entries(actsOf(context)))
    pages.post<ProjectionParams>(`${path}/${name}`, async (request, reply) => {
      const projection = named(request.params.projection)
      const viewer = viewerOf(request, reply)
      const outcome = await attemptOnce(context, request, async (form) =>
        act(projection, form, provedOperator(viewer.user)),
      )
      return 'fault' in outcome
        ? sendPage(reply.code(422), await shownOf(context, request, { viewer, fault: outcome.fault }))
        : reply.redirect(`/operations/projections/${projection.name}`, 303)
    })
  rebuildRoute(pages, context)
  retryRoute(pages, context)
}

type Act = (projection: Projection, form: Form, actor: { readonly actor: string }) => Promise<unknown>

/** Done immediately, or the form's fault is shown. */
const actsOf = ({ foundation }: Dashboard): Readonly<Record<'cancel' | 'release', Act>> => ({
  cancel: (projection, _form, operator) =>
    cancelRebuilds(foundation, { projections: [projection], ...operator }),
  release: (projection, form, operator) => {
    const position = form.text('position')
    if (!/^\d{1,19}$/.test(position))
      throw new InputFault('position', `"${position}" is not a position of the event log`)
    return releaseParked(foundation, {
      projection,
      position: BigInt(position),
      reason: reasonIn(form),
      ...operator,
    })
  },
})

const refusedLoss =
  'The rows were left as they are. The event log was restored from an older copy, and a rebuild would forget what only the rows know. ' +
  'Stop the service and run "projection rebuild --all" on the command line: it lists what would be lost, and asks.'

/** Long work is awaited on a separate page. */
const rebuildRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger } = context
  pages.post<ProjectionParams>(`${path}/rebuild`, async (request, reply) => {
    const projection = named(request.params.projection)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) => reasonIn(form))
    if ('fault' in outcome)
      return sendPage(reply.code(422), await shownOf(context, request, { viewer, fault: outcome.fault }))
    return begin(context, reply, {
      key: `rebuild/${viewer.once}`,
      title: `Rebuilding ${projection.name}`,
      run: async (progress) => {
        const { switched } = await rebuild(foundation, {
          projections: [projection],
          reason: outcome.done,
          ...provedOperator(viewer.user),
          logger,
          mayForget: async () => false,
          onProgress: progressOf(progress),
        })
        if (!switched) throw new CommandRefused(refusedLoss)
        return { href: `/operations/projections/${projection.name}` }
      },
    })
  })
}

const retryRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger } = context
  pages.post<ProjectionParams>(`${path}/retry`, async (request, reply) => {
    const projection = named(request.params.projection)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async () => undefined)
    if ('fault' in outcome)
      return sendPage(reply.code(422), await shownOf(context, request, { viewer, fault: outcome.fault }))
    return begin(context, reply, {
      key: `retry/${viewer.once}`,
      title: `Retrying ${projection.name}`,
      run: async (progress) => {
        const retried = await retryParked(foundation, {
          projection,
          ...provedOperator(viewer.user),
          logger,
          mayForget: async () => false,
          onProgress: progressOf(progress),
        })
        return { page: (of) => retriedPage({ viewer: of, name: projection.name, retried }) }
      },
    })
  })
}
