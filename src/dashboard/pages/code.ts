import { type Html, html } from '../html.ts'
import { csrfField, described, faultNotice, layout } from './layout.ts'

/** The second page of a sign-in. */
export const codePage = ({
  csrf,
  next,
  message,
}: {
  readonly csrf: string
  readonly next: string
  /** Why the previous code was refused. */
  readonly message: string | null
}): Html => {
  const fault = message === null ? null : { field: 'code', message }
  return layout({
    title: 'Second factor',
    viewer: null,
    main: html`<div class="narrow">
<h1>Second factor</h1>
<p class="note">Your password was right. Type the code that your authenticator app shows, or one of your recovery codes, within five minutes.</p>
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
