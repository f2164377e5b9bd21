import { mayDo } from '../../administration/roles.ts'
import type { Form } from '../form.ts'
import { type Html, html } from '../html.ts'
import { described, type FormFault, faultNotice, formFields, layout, type Viewer } from './layout.ts'

/** The form that registers an organization, and the page after it. */

const frame = (viewer: Viewer, title: string, main: Html): Html =>
  layout({
    title,
    viewer,
    main: html`<div class="narrow">
<p class="eyebrow"><a href="/">Overview</a></p>
<h1>${title}</h1>
${main}
</div>`,
  })

export const newOrganizationPage = ({
  viewer,
  typed,
  fault,
}: {
  readonly viewer: Viewer
  readonly typed: Form
  readonly fault: FormFault | null
}): Html =>
  frame(
    viewer,
    'Register an organization',
    html`${faultNotice(fault)}
<p>It gets a ledger of its own, with no credits and no key. Neither its name nor its overdraft limit can be changed later.</p>
<form class="fields" method="post" action="/organizations/new">
${formFields(viewer)}
<p><label for="name">Name</label>
<input id="name" name="name" value="${typed.text('name')}" required maxlength="200" autocomplete="off"${described('name', fault, 'name-hint')}>
<small id="name-hint">What partners and statements call it.</small></p>
<p><label for="overdraft-limit">Overdraft limit, credits</label>
<input id="overdraft-limit" name="overdraft-limit" value="${typed.text('overdraft-limit')}" inputmode="decimal" required maxlength="20" autocomplete="off"${described('overdraft-limit', fault, 'overdraft-limit-hint')}>
<small id="overdraft-limit-hint">How far below zero its balance may go. 0: calls end with its credits.</small></p>
<p class="actions"><button type="submit">Register</button> <a href="/">Cancel</a></p>
</form>`,
  )

/** Used if the organization's own page does not exist yet: the read models are behind. */
export const organizationRegisteredPage = ({
  viewer,
  organizationId,
  name,
}: {
  readonly viewer: Viewer
  readonly organizationId: string
  readonly name: string
}): Html =>
  frame(
    viewer,
    'Organization registered',
    html`<p class="notice">${name} is registered as <span class="id whole">${organizationId}</span>. Its pages follow as soon as the read models have caught up with the event log.</p>
<p class="actions"><a class="button" href="/organizations/${organizationId}">Its account</a>
${mayDo(viewer.role, 'keys.change') && html`<a href="/organizations/${organizationId}/keys/new">Issue its first key</a>`}
${mayDo(viewer.role, 'credits.change') && html`<a href="/organizations/${organizationId}/credits/grant">Grant credits</a>`}</p>`,
  )
