import type { FastifyReply, FastifyRequest } from 'fastify'
import { html } from '../html.ts'
import { csrfOf, type Dashboard, sendPage } from '../page.ts'
import { csrfField, type FormFault, faultNotice, layout } from './layout.ts'

/** Sends the sign-in page. `notice` is the reason why the page is shown again. */
export const sendSignIn = (
  { provider }: Pick<Dashboard, 'provider'>,
  request: FastifyRequest,
  reply: FastifyReply,
  {
    next,
    name = '',
    fault = null,
    notice = null,
  }: { next: string; name?: string; fault?: FormFault | null; notice?: string | null },
): FastifyReply => {
  const { docsUrl } = request
  const page = layout({
    title: 'Sign in',
    viewer: null,
    main: html`<div class="narrow">
<h1>Sign in</h1>
${notice !== null && html`<p class="notice" role="status">${notice}</p>`}
${faultNotice(fault)}
<form class="fields" method="post" action="/login">
${csrfField(csrfOf(request, reply))}
<input type="hidden" name="next" value="${next}">
<p><label for="name">User name</label>
<input id="name" name="name" value="${name}" autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="123"${name === '' && html` autofocus`}></p>
<p><label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="1024"${name !== '' && html` autofocus`}></p>
<p class="actions"><button type="submit">Sign in</button></p>
</form>
${docsUrl !== null && html`<p class="note"><a href="${docsUrl}">Documentation of the API</a> (no sign-in needed)</p>`}
${provider !== null && html`<p class="actions"><a class="button quiet" href="/login/provider?next=${encodeURIComponent(next)}">Sign in with ${provider.label}</a></p>`}
</div>`,
  })
  return sendPage(reply, page)
}
