import { strict as assert } from 'node:assert'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { faultOf } from './form.ts'
import type { Html } from './html.ts'
import { askerOf, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { workFailedPage, workPage } from './pages/work.ts'
import { sessionIsOpen } from './session.ts'

/** Background work of a page: its progress, as a page and as a stream of events, and its result. */

type WorkParams = { Params: { work: string } }

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
  const outcome = await works.soon({ ...asked, ...askedBy(request) }, waitMs)
  if ('result' in outcome) return outcome
  request.asksByItself = true
  return { sent: sendPage(reply, workPage({ viewer: viewerOf(request, reply), work: outcome.work })) }
}

/** The result of a work that a form started. `once`: its page has a secret, so no later request gets it. */
type Begun = { readonly page: (viewer: ReturnType<typeof viewerOf>) => Html; readonly once: boolean }

const isBegun = (result: unknown): result is Begun =>
  typeof result === 'object' && result !== null && 'page' in result

/** The page of a sent form, if it is ready soon; otherwise the person was redirected to the page that waits for it. */
export const soonOrWaiting = async (
  { works }: Dashboard,
  reply: FastifyReply,
  asked: {
    readonly key: string
    readonly title: string
    readonly run: (progress: (text: string) => void) => Promise<Begun>
  },
): Promise<Begun | { sent: FastifyReply }> => {
  const outcome = await works.soon({ ...asked, ...askedBy(reply.request) }, waitMs)
  return 'result' in outcome ? outcome.result : { sent: reply.redirect(`/waiting/${outcome.work.id}`, 303) }
}

const askedBy = (request: FastifyRequest) => ({ owner: ownerOf(request), asker: askerOf(request) })

/** A person's access ends with the role, and a partner's with the organization; so does access to the results of their work. */
const ownerOf = ({ standing }: FastifyRequest): string => {
  assert(standing !== null)
  return JSON.stringify([standing.user, standing.role, standing.organizationId])
}

/** Whether the person of a stream is still signed in, and is the one who started it. If that is unknown, the stream ends. */
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
  const ending = new AbortController()
  pages.addHook('preClose', async () => ending.abort())

  pages.get<WorkParams>('/waiting/:work', (request, reply) => {
    request.asksByItself = true
    const viewer = viewerOf(request, reply)
    const work = context.works.find(request.params.work, ownerOf(request))
    if (work === undefined) throw new PageMissing()
    const { outcome, title } = work
    if (outcome === null) return sendPage(reply, workPage({ viewer, work }))
    if (outcome.kind === 'failed') {
      const fault = faultOf(outcome.error)
      if (fault === null) throw outcome.error
      return sendPage(reply.code(422), workFailedPage({ viewer, title, message: fault.message }))
    }
    if (!isBegun(outcome.result)) throw new PageMissing()
    if (outcome.result.once) context.works.forget(work.id)
    return sendPage(reply, outcome.result.page(viewer))
  })

  pages.get<WorkParams>('/waiting/:work/progress', (request, reply) => {
    request.asksByItself = true
    const now = (): Told => context.works.find(request.params.work, ownerOf(request))
    if (now() === undefined) throw new PageMissing()
    const told = progressOf(now, () => isStill(context, request), ending.signal)
    return reply
      .type('text/event-stream; charset=utf-8')
      .header('cache-control', 'no-store')
      .header('x-accel-buffering', 'no')
      .send(Readable.from(told))
  })
}

type Told = { readonly progress: string; readonly outcome: unknown } | undefined

async function* progressOf(
  now: () => Told,
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
    const work = now()
    // Work that is no longer stored has ended as well.
    if (work === undefined || work.outcome !== null) return yield 'event: done\ndata: done\n\n'
    if (work.progress !== said) {
      said = work.progress
      yield `event: progress\ndata: ${said.replaceAll(/[\r\n]+/g, ' ')}\n\n`
    }
    await sleep(pollMs, undefined, { signal: ending }).catch(() => undefined)
  }
}
