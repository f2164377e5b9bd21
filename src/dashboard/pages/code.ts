import type { FastifyInstance } from 'fastify'
import { beginSession, checkCode, codeRefusal, halfOf, startOver } from '../entering.ts'
import { formOf } from '../form.ts'
import { type Html, html } from '../html.ts'
import { nextOf } from '../next.ts'
import { csrfOf, type Dashboard, sendPage } from '../page.ts'
import { csrfField, described, faultNotice, layout } from './layout.ts'

const statusOf = { wrong: 401, used: 401, limited: 429, broken: 403 } as const

/** The second page of a sign-in, for people with a second factor. */
export const codeRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/login/code', async (request, reply) => {
    const half = await halfOf(context, request)
    if (half === null) return startOver(reply, '/')
    const { next } = half
    return sendPage(reply, codePage({ csrf: csrfOf(request, reply), next, message: null }))
  })

  pages.post('/login/code', async (request, reply) => {
    const form = formOf(request.body)
    const half = await halfOf(context, request)
    // The cookie with the requested page may have expired, but the form also contains that page.
    if (half === null) return startOver(reply, nextOf(form.text('next')))
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

const codePage = ({
  csrf,
  next,
  message,
}: {
  readonly csrf: string
  readonly next: string
  /** The reason why the previous code was refused. */
  readonly message: string | null
}): Html => {
  const fault = message === null ? null : { field: 'code', message }
  return layout({
    title: 'Second factor',
    viewer: null,
    main: html`<div class="narrow">
<h1>Second factor</h1>
<p class="note">Your password is correct. Within five minutes, type the code from your authenticator app, or one of your recovery codes.</p>
${faultNotice(fault)}
<form class="fields" method="post" action="/login/code">
${csrfField(csrf)}
<input type="hidden" name="next" value="${next}">
<p><label for="code">Code</label>
<input id="code" name="code" autocomplete="one-time-code" autocapitalize="none" spellcheck="false" required maxlength="40" autofocus${described('code', fault)}></p>
<p class="actions"><button type="submit">Continue</button> <a href="/login">Start over</a></p>
</form>
</div>`,
  })
}
