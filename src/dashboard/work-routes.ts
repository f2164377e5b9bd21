import { strict as assert } from 'node:assert'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { askerOf, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { workPage } from './pages/work.ts'
import { sessionIsOpen } from './session.ts'

/** A page that takes long to work out: its progress, as a page and as a stream of events. */

/** A page waits this long for the result; after that it shows the progress instead. */
const waitMs = 1_500
const pollMs = 250
/** A stream ends before proxies end it; the browser reconnects. */
const streamMs = 50_000
const againMs = 500
/** A stream ends at most this long after a sign-out, a disabled user or another role. */
const lookMs = 1_000

/** The result if it is ready soon; otherwise the page that waits for it was sent. */
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

/** A person's access ends with the role, and a partner's with the organization; so does access to the results of their work. */
const ownerOf = ({ standing }: FastifyRequest): string => {
  assert(standing !== null)
  return JSON.stringify([standing.user, standing.role, standing.organizationId])
}

/** Whether the person of a stream is still signed in, with the same role. If that is unknown, the stream ends. */
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

/** Sends what `now` says while it changes, as server-sent events. `now` resolves to null when the work has ended. */
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
