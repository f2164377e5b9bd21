import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { faultOf } from './form.ts'
import type { Html } from './html.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { workFailedPage, workPage } from './pages/work.ts'

/** What goes on behind a page: how far it is, as a page and as a stream of events, and what came of it. */

type WorkParams = { Params: { work: string } }

/** A page that is waited for: longer than this, and it says how far it is instead. */
const waitMs = 1_500
const pollMs = 250
/** A stream ends before proxies end it; the browser asks again. */
const streamMs = 50_000
const againMs = 500

/** The result where it is there soon; otherwise the page that waits for it was sent. */
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
  const viewer = viewerOf(request, reply)
  const outcome = await works.soon({ ...asked, user: viewer.user }, waitMs)
  if ('result' in outcome) return outcome
  request.asksByItself = true
  return { sent: sendPage(reply, workPage({ viewer, work: outcome.work })) }
}

/** What a work that a form began comes to: the page that shows it. */
type Begun = { readonly href: string } | { readonly page: (viewer: ReturnType<typeof viewerOf>) => Html }

const isBegun = (result: unknown): result is Begun =>
  typeof result === 'object' && result !== null && ('href' in result || 'page' in result)

/** Begins what a form asks for, and leads to the page that waits for it. */
export const begin = (
  { works }: Dashboard,
  reply: FastifyReply,
  asked: {
    readonly key: string
    readonly title: string
    readonly user: string
    readonly run: (progress: (text: string) => void) => Promise<Begun>
  },
): FastifyReply => reply.redirect(`/waiting/${works.start(asked, { again: true }).id}`, 303)

export const workRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const ending = new AbortController()
  pages.addHook('preClose', async () => ending.abort())

  pages.get<WorkParams>('/waiting/:work', (request, reply) => {
    request.asksByItself = true
    const viewer = viewerOf(request, reply)
    const work = context.works.find(request.params.work, viewer.user)
    if (work === undefined) throw new PageMissing()
    const { outcome, title } = work
    if (outcome === null) return sendPage(reply, workPage({ viewer, work }))
    if (outcome.kind === 'failed') {
      const fault = faultOf(outcome.error)
      if (fault === null) throw outcome.error
      return sendPage(reply.code(422), workFailedPage({ viewer, title, message: fault.message }))
    }
    if (!isBegun(outcome.result)) throw new PageMissing()
    return 'href' in outcome.result
      ? reply.redirect(outcome.result.href, 303)
      : sendPage(reply, outcome.result.page(viewer))
  })

  pages.get<WorkParams>('/waiting/:work/progress', (request, reply) => {
    request.asksByItself = true
    const { user } = viewerOf(request, reply)
    if (context.works.find(request.params.work, user) === undefined) throw new PageMissing()
    const told = progressOf(() => context.works.find(request.params.work, user), ending.signal)
    return reply
      .type('text/event-stream; charset=utf-8')
      .header('cache-control', 'no-store')
      .header('x-accel-buffering', 'no')
      .send(Readable.from(told))
  })
}

type Told = { readonly progress: string; readonly outcome: unknown } | undefined

async function* progressOf(now: () => Told, ending: AbortSignal): AsyncGenerator<string> {
  yield `retry: ${againMs}\n\n`
  const end = performance.now() + streamMs
  let said = ''
  while (performance.now() < end && !ending.aborted) {
    const work = now()
    // What was kept no longer has ended as well.
    if (work === undefined || work.outcome !== null) return yield 'event: done\ndata: done\n\n'
    if (work.progress !== said) {
      said = work.progress
      yield `event: progress\ndata: ${said.replaceAll(/[\r\n]+/g, ' ')}\n\n`
    }
    await sleep(pollMs, undefined, { signal: ending }).catch(() => undefined)
  }
}
