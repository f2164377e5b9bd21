import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { csrfField, described, type FormFault, faultNotice, layout } from './layout.ts'

/** The page on which an invited person chooses a password. The form is sent to the link itself. */
export const invitationPage = ({
  csrf,
  user,
  role,
  expiresAt,
  fault,
}: {
  readonly csrf: string
  readonly user: string
  readonly role: string
  readonly expiresAt: string
  readonly fault: FormFault | null
}): Html =>
  layout({
    title: 'Invitation',
    viewer: null,
    main: html`<div class="narrow">
<h1>Welcome, ${user}</h1>
<p>You are invited, with the role ${role}. Choose a password, and then sign in with the name <strong>${user}</strong>. The link works once, until ${utc(new Date(expiresAt))}.</p>
${faultNotice(fault)}
<form class="fields" method="post">
${csrfField(csrf)}
<input type="text" name="username" value="${user}" autocomplete="username" hidden readonly>
${passwordField('new', 'Password, at least 15 characters', fault)}
${passwordField('again', 'Repeat the password', fault)}
<p class="actions"><button type="submit">Set password</button></p>
</form>
</div>`,
  })

const passwordField = (name: string, label: string, fault: FormFault | null): Html =>
  html`<p><label for="${name}">${label}</label>
<input id="${name}" name="${name}" type="password" required maxlength="1024" autocomplete="new-password"${described(name, fault)}></p>`
