import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { described, type FormFault, faultNotice, formFields, type Viewer } from './layout.ts'
import { roleFields, usersFrame } from './users.ts'

/** The form that invites a person, and the one page that shows the link. */

export const invitePage = ({
  viewer,
  typed,
  fault,
}: {
  readonly viewer: Viewer
  readonly typed: (name: string) => string
  readonly fault: FormFault | null
}): Html =>
  usersFrame(
    viewer,
    'Invite someone',
    html`<div class="narrow">${faultNotice(fault)}
<p>You get a link to send. Its holder becomes the user, and chooses the password, once, within 72 hours. An earlier link for the same name opens nothing any more.</p>
<form class="fields" method="post" action="/invite">${formFields(viewer)}
<p><label for="name">User name</label>
<input id="name" name="name" value="${typed('name')}" required maxlength="64" autocomplete="off" autocapitalize="none" spellcheck="false"${described('name', fault, 'name-hint')}>
<small id="name-hint">Where people sign in with a provider of identities: the name it gives them, such as an e-mail address.</small></p>
${roleFields({ role: typed('role') || 'viewer', org: typed('org') }, fault)}
<p class="actions"><button type="submit">Make the link</button> <a href="/users">Cancel</a></p>
</form></div>`,
  )

/** The only page that shows the link. */
export const invitedPage = ({
  viewer,
  name,
  link,
  expiresAt,
  replaced,
}: {
  readonly viewer: Viewer
  readonly name: string
  readonly link: string
  readonly expiresAt: string
  readonly replaced: boolean
}): Html =>
  usersFrame(
    viewer,
    'Invited',
    html`<div class="narrow"><p class="notice">Copy the link for ${name} now. It is not shown again. Who has it becomes the user: send it to that person alone.</p>
${replaced && html`<p>The link that was made before opens nothing any more.</p>`}
<p class="label" id="shown-label">Link</p>
<p class="secret" tabindex="0" aria-labelledby="shown-label"><code id="shown">${link}</code></p>
<p class="actions"><button type="button" data-copy="shown" aria-live="polite" hidden>Copy the link</button> <a class="button quiet" href="/users">Back to the users</a></p>
<p class="note">It works once, until ${utc(new Date(expiresAt))}.</p></div>`,
  )
