import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Declared, Given } from '../administration/declare.ts'
import { answerOf, type LongWork, longWork, requestLongWork } from '../administration/jobs/long-work.ts'
import type { Operator } from '../administration/operator.ts'
import { mayDo } from '../administration/roles.ts'
import { eventIdOf } from '../event-log/stored-event.ts'
import { places } from './declared.ts'
import { faultOf } from './form.ts'
import { capitalized } from './format.ts'
import { takeForm } from './once.ts'
import { accountAt, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { workAnswerPage, workFailedPage } from './pages/declared.ts'
import { workPage } from './pages/work.ts'

/** Pages with the progress and the answer of long-running work in any process. */

/**
 * Requests the work of a form, and returns the URL of the work. The same form returns the same URL when it is sent again. Throws
 * `FormSentBefore` if it is sent again with other values.
 */
export const requestedWork = async (
  { foundation, logger }: Dashboard,
  sent: { readonly user: string; readonly path: string; readonly once: string },
  work: { readonly declared: Declared; readonly given: Given; readonly operator: Operator },
): Promise<string> => {
  const form = [sent.user, sent.path, sent.once, JSON.stringify(work.given)]
  const id = eventIdOf('long-work', form.join(' '), 0)
  if ((await longWork(foundation.pool, id)) === null) {
    await takeForm(foundation.pool, sent, Date.now())
    await requestLongWork(foundation, { id, ...work }, logger)
  }
  return `/jobs/${id}`
}

type JobParams = { Params: { job: string } }

export const longWorkRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<JobParams>('/jobs/:job', async (request, reply) => {
    const work = await workAt(context, request)
    const view = await viewOf(context, work, request, reply)
    if (work.state === 'waiting' || work.state === 'running') {
      const title = capitalized(view.place.declared.summary)
      const progress = { title, since: work.requestedAt, progress: saidOf(work), path: `/jobs/${work.id}` }
      return sendPage(reply, workPage({ viewer: view.viewer, ...progress }))
    }
    // The page no longer refreshes itself, because the work has ended.
    request.asksByItself = false
    try {
      return sendPage(reply, workAnswerPage({ ...view, answer: answerOf(work) }))
    } catch (error) {
      const refused = faultOf(error)
      const message = refused?.message ?? `The work failed: ${work.error}`
      return sendPage(reply.code(refused === null ? 200 : 422), workFailedPage({ ...view, message }))
    }
  })
}

const saidOf = ({ state, progress }: LongWork): string =>
  progress?.line ?? (state === 'waiting' ? 'Waiting for a process that runs jobs.' : 'Started.')

/** Throws `PageMissing` if the user's role does not permit this work. */
const workAt = async ({ foundation }: Dashboard, request: FastifyRequest<JobParams>): Promise<LongWork> => {
  request.asksByItself = true
  const work = await longWork(foundation.pool, request.params.job)
  if (work === null || request.standing === null || !mayDo(request.standing.role, work.action))
    throw new PageMissing()
  return work
}

/** The view of the form that requested the work: the organization's own form if the work is for one organization. */
const viewOf = async (
  context: Dashboard,
  { name, given }: LongWork,
  request: FastifyRequest,
  reply: FastifyReply,
) => {
  const offered = places.filter(({ declared }) => declared.name === name)
  const scope = offered[0]?.declared.fields.find(({ control }) => control === 'organization')
  const organizationId = scope === undefined ? undefined : given[scope.name]
  const place =
    offered.find(({ organization }) => organization === (organizationId !== undefined)) ?? offered[0]
  if (place === undefined) throw new PageMissing()
  const account = place.organization ? await accountAt(context, String(organizationId)) : null
  return { place, viewer: viewerOf(request, reply), account, about: given }
}
