import { strict as assert } from 'node:assert'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { askerOf, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { workPage } from './pages/work.ts'
import { sessionIsOpen } from './session.ts'

/** The progress of pages that take a long time to compute, as a page and as a stream of events. */

/** A request waits this long for the result, and then shows the progress instead. */
const waitMs = 1_500
const pollMs = 250
/** A stream ends before a proxy would end it. The browser then reconnects. */
const streamMs = 50_000
const againMs = 500
/** A stream ends within this time after its user signs out, is disabled or gets another role. */
const lookMs = 1_000

/** Returns the result if it is ready soon. Otherwise sends a page that shows the progress. */
export const soonOr = async <Result>(
  { works }: Dashboard,
  {
    request,
    reply,
    ...asked
  }: {
    readonly request: FastifyRequest
    readonly reply: FastifyReply
    readonly key: string
    readonly title: string
    readonly run: (progress: (text: string) => void) => Promise<Result>
  },
): Promise<{ result: Result } | { sent: FastifyReply }> => {
  const outcome = await works.soon({ ...asked, owner: ownerOf(request), asker: askerOf(request) }, waitMs)
  if ('result' in outcome) return outcome
  request.asksByItself = true
  const { id, title, startedAtMs, progress } = outcome.work
  const view = { title, since: new Date(startedAtMs), progress: progress || 'Started.' }
  return {
    sent: sendPage(
      reply,
      workPage({ viewer: viewerOf(request, reply), ...view, stream: `/waiting/${id}/progress` }),
    ),
  }
}

/** Identifies the owner of a result. A user with a new role or organization can no longer open earlier results. */
const ownerOf = ({ standing }: FastifyRequest): string => {
  assert(standing !== null)
  return JSON.stringify([standing.user, standing.role, standing.organizationId])
}

/** Whether the user is still signed in with the same role; false if that is unknown. */
const isStill = async (context: Dashboard, request: FastifyRequest): Promise<boolean> => {
  const { standing, session } = request
  if (standing === null) return false
  try {
    const [now, open] = await Promise.all([
      context.users.standing(standing.user),
      sessionIsOpen(context.foundation.pool, session.sessionId),
    ])
    return (
      open &&
      now.kind === 'acts' &&
      now.role === standing.role &&
      now.organizationId === standing.organizationId
    )
  } catch {
    return false
  }
}

export const workRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<{ Params: { work: string } }>('/waiting/:work/progress', (request, reply) => {
    request.asksByItself = true
    const { work: id } = request.params
    const now = async (): Promise<string | null> => {
      const work = context.works.find(id, ownerOf(request))
      // Work that is no longer stored has ended as well.
      return work === undefined || work.outcome !== null ? null : work.progress
    }
    if (context.works.find(id, ownerOf(request)) === undefined) throw new PageMissing()
    return sendProgress(context, request, reply, now)
  })
}

/** Sends every new result of `now` as a server-sent event, until `now` resolves to null because the work has ended. */
export const sendProgress = (
  context: Dashboard,
  request: FastifyRequest,
  reply: FastifyReply,
  now: () => Promise<string | null>,
): FastifyReply => {
  request.asksByItself = true
  return reply
    .type('text/event-stream; charset=utf-8')
    .header('cache-control', 'no-store')
    .header('x-accel-buffering', 'no')
    .send(Readable.from(progressOf(now, () => isStill(context, request), context.ending)))
}

async function* progressOf(
  now: () => Promise<string | null>,
  isStillTheirs: () => Promise<boolean>,
  ending: AbortSignal,
): AsyncGenerator<string> {
  yield `retry: ${againMs}\n\n`
  const end = performance.now() + streamMs
  let said = ''
  let askAt = performance.now() + lookMs
  while (performance.now() < end && !ending.aborted) {
    if (performance.now() >= askAt) {
      if (!(await isStillTheirs())) return
      askAt = performance.now() + lookMs
    }
    const progress = await now()
    if (progress === null) return yield 'event: done\ndata: done\n\n'
    if (progress !== said) {
      said = progress
      yield `event: progress\ndata: ${said.replaceAll(/[\r\n]+/g, ' ')}\n\n`
    }
    await sleep(pollMs, undefined, { signal: ending }).catch(() => undefined)
  }
}
