import { type Html, html } from '../html.ts'
import { csrfField, type FormFault, faultNotice, layout } from './layout.ts'

export const signInPage = ({
  csrf,
  next,
  name,
  fault,
}: {
  csrf: string
  next: string
  name: string
  fault: FormFault | null
}): Html =>
  layout({
    title: 'Sign in',
    viewer: null,
    main: html`<div class="narrow">
<h1>Sign in</h1>
${faultNotice(fault)}
<form class="fields" method="post" action="/login">
${csrfField(csrf)}
<input type="hidden" name="next" value="${next}">
<p><label for="name">User name</label>
<input id="name" name="name" value="${name}" autocomplete="username" autocapitalize="none" spellcheck="false" required maxlength="123"${name === '' && html` autofocus`}></p>
<p><label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="1024"${name !== '' && html` autofocus`}></p>
<p class="actions"><button type="submit">Sign in</button></p>
</form>
</div>`,
  })
