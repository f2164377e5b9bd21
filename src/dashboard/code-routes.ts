import type { FastifyInstance } from 'fastify'
import { beginAnew, beginSession, checkCode, codeRefusal, halfOf } from './entering.ts'
import { formOf } from './form.ts'
import { nextOf } from './next.ts'
import { csrfOf, type Dashboard, sendPage } from './page.ts'
import { codePage } from './pages/code.ts'

const statusOf = { wrong: 401, used: 401, limited: 429, broken: 403 } as const

/** The second page of a sign-in, for people with a second factor. */
export const codeRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/login/code', async (request, reply) => {
    const half = await halfOf(context, request)
    if (half === null) return beginAnew(reply, '/')
    const { next } = half
    return sendPage(reply, codePage({ csrf: csrfOf(request, reply), next, message: null }))
  })

  pages.post('/login/code', async (request, reply) => {
    const form = formOf(request.body)
    const half = await halfOf(context, request)
    // The cookie that names the requested page may have expired, but the form still names that page.
    if (half === null) return beginAnew(reply, nextOf(form.text('next')))
    const { user, next } = half
    const outcome = await checkCode(context, request, { user, typed: form.text('code') })
    if (outcome.kind === 'right') {
      context.halfSignedIn.end(reply)
      return beginSession(context, request, reply, { ...half, factorId: outcome.factorId })
    }
    if (outcome.retryAfterSeconds !== null) reply.header('retry-after', outcome.retryAfterSeconds)
    reply.code(statusOf[outcome.kind])
    return sendPage(reply, codePage({ csrf: csrfOf(request, reply), next, message: codeRefusal(outcome) }))
  })
}
