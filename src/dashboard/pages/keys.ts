import { limitFields } from '../../administration/keys/key-request.ts'
import { permission } from '../../events/capabilities.ts'
import { isTestOrganization } from '../../events/test-organization.ts'
import type { Form } from '../form.ts'
import { capitalized, utc, words } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow, KeyRow } from '../queries.ts'
import { described, type FormFault, faultNotice, formFields, layout, type Viewer } from './layout.ts'

/** The forms an operator fills in to issue, rotate or revoke a key, and the one page that shows a key. */

type FormView = { readonly viewer: Viewer; readonly account: AccountRow; readonly fault: FormFault | null }

const frame = ({ viewer, account }: Pick<FormView, 'viewer' | 'account'>, title: string, main: Html): Html =>
  layout({
    title,
    viewer,
    main: html`<div class="narrow">
<p class="eyebrow"><a href="/">Overview</a> / <a href="/organizations/${account.organization_id}">${account.name}</a></p>
<h1>${title}</h1>
${main}
</div>`,
  })

const cancel = (account: AccountRow): Html =>
  html`<a href="/organizations/${account.organization_id}#keys">Cancel</a>`

export const issueKeyPage = (
  view: FormView & {
    /** The form as typed. */
    readonly typed: Form
  },
): Html =>
  frame(
    view,
    'Issue an API key',
    html`${faultNotice(view.fault)}
<form class="fields" method="post" action="/organizations/${view.account.organization_id}/keys/new">
${formFields(view.viewer)}
<p><label for="name">Name</label>
<input id="name" name="name" value="${view.typed.text('name')}" required maxlength="200" autocomplete="off"${described('name', view.fault, 'name-hint')}>
<small id="name-hint">What the key is for, such as production.</small></p>
<fieldset${described('permissions', view.fault)}>
<legend>Permissions</legend>
${permission.options.map(
  (option) => html`<label class="choice"><input type="checkbox" name="permissions" value="${option}"${
    view.typed.list('permissions').includes(option) && html` checked`
  }> ${words(option)}</label>
`,
)}</fieldset>
<div class="pair">
${limitFields.map(
  ({ field, what }) => html`<p><label for="${field}">${capitalized(what)}</label>
<input id="${field}" name="${field}" value="${view.typed.text(field)}" inputmode="numeric" required maxlength="15" autocomplete="off"${described(field, view.fault)}></p>
`,
)}</div>
<p><label for="allow">Allowed from</label>
<input id="allow" name="allow" value="${view.typed.text('allow')}" autocomplete="off"${described('allow', view.fault, 'allow-hint')}>
<small id="allow-hint">Addresses or CIDR blocks, separated by commas, such as 203.0.113.0/24. Empty: from anywhere.</small></p>
<p><label for="expires-at">Expires</label>
<input id="expires-at" name="expires-at" value="${view.typed.text('expires-at')}" maxlength="40" autocomplete="off"${described('expires-at', view.fault, 'expires-at-hint')}>
<small id="expires-at-hint">Such as 2027-01-31T00:00:00Z. Empty: never.</small></p>
${
  !isTestOrganization(view.account.organization_id) &&
  html`<fieldset><legend>For tests</legend>
<label class="choice"><input type="checkbox" name="test" value="on"${view.typed.text('test') === 'on' && html` checked`} aria-describedby="test-hint"> A test key</label>
<small id="test-hint">Its calls are free, are answered from made-up data, and are in a ledger of their own.</small></fieldset>`
}
<p class="actions"><button type="submit">Issue key</button> ${cancel(view.account)}</p>
</form>`,
  )

/** How long the old key may stay valid, longest choice last. */
const graces = [
  ['0s', 'ends at once'],
  ['15m', '15 minutes'],
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
  ['30d', '30 days'],
] as const

export const rotateKeyPage = (view: FormView & { readonly key: KeyRow; readonly grace: string }): Html =>
  frame(
    view,
    'Rotate a key',
    html`${faultNotice(view.fault)}
<p>${keyNamed(view.key)} gets a successor with the same permissions and limits. Both keys work until the grace period ends.</p>
<form class="fields" method="post" action="/organizations/${view.account.organization_id}/keys/${view.key.key_id}/rotate">
${formFields(view.viewer)}
<p><label for="grace">The old key works on for</label>
<select id="grace" name="grace"${described('grace', view.fault)}>${graces.map(
      ([value, label]) =>
        html`<option value="${value}"${value === view.grace && html` selected`}>${label}</option>`,
    )}</select></p>
<p class="actions"><button type="submit">Rotate key</button> ${cancel(view.account)}</p>
</form>`,
  )

export const revokeKeyPage = (view: FormView & { readonly key: KeyRow; readonly reason: string }): Html =>
  frame(
    view,
    'Revoke a key',
    html`${faultNotice(view.fault)}
<p>${keyNamed(view.key)} stops working within a second, everywhere. This cannot be undone.</p>
<form class="fields" method="post" action="/organizations/${view.account.organization_id}/keys/${view.key.key_id}/revoke">
${formFields(view.viewer)}
<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${view.reason}" required maxlength="200" autocomplete="off"${described('reason', view.fault, 'reason-hint')}>
<small id="reason-hint">Kept in the event log with your user name, and shown to the organization.</small></p>
<p class="actions"><button class="danger" type="submit">Revoke key</button> ${cancel(view.account)}</p>
</form>`,
  )

const keyNamed = (key: KeyRow): Html =>
  html`<strong>${key.name}</strong> <span class="id">${key.key_id} …${key.last4}</span>`

/** The form was sent before: by a reload, or by a second click. */
export const keyIssuedBeforePage = (
  view: Pick<FormView, 'viewer' | 'account'> & { readonly keyId: string },
): Html =>
  frame(
    view,
    'Key issued before',
    html`<p class="notice">This form was sent before and issued key <span class="id">${view.keyId}</span> then. No second key was issued, and the first is not shown again.</p>
<p class="note">If nobody has copied it, revoke it and issue another.</p>
<p class="actions"><a class="button" href="/organizations/${view.account.organization_id}#key-${view.keyId}">Back to ${view.account.name}</a></p>`,
  )

/** The only page that ever shows a key. */
export const keyShownPage = (
  view: Pick<FormView, 'viewer' | 'account'> & {
    readonly keyId: string
    readonly apiKey: string
    /** The organization it was issued to: for a test key, the test organization. */
    readonly owner: { readonly organization_id: string; readonly name: string }
    /** Lines that make a first call with it. */
    readonly calls: readonly { readonly name: string; readonly text: string }[]
    /** Whether the address in them is that of this service. */
    readonly apiKnown: boolean
    /** The previous key, which works until then. */
    readonly replaces: { readonly keyId: string; readonly until: Date } | null
  },
): Html =>
  frame(
    view,
    view.replaces === null ? 'Key issued' : 'Key rotated',
    html`<p class="notice">Copy the key now. It is stored nowhere and is not shown again.</p>
<p class="label" id="api-key-label">API key</p>
<p class="secret" tabindex="0" aria-labelledby="api-key-label"><code id="api-key">${view.apiKey}</code></p>
<p class="actions"><button type="button" data-copy="api-key" aria-live="polite" hidden>Copy the key</button></p>
<p class="note">Key id <span class="id">${view.keyId}</span>${
      view.replaces !== null &&
      html`; <span class="id">${view.replaces.keyId}</span> works until ${utc(view.replaces.until)}`
    }. Partners send the key in the <code>x-api-key</code> header.</p>
<section aria-labelledby="first-call">
<h2 id="first-call">A first call</h2>
<p class="note">${
      view.apiKnown
        ? 'The address is the one this service listens on. Behind a proxy it is another one.'
        : 'Put the address of your API in the place of api.example.com.'
    }</p>
${view.calls.map(
  ({ name, text }, i) => html`<div class="heading"><h3 id="line-${i}-label">${name}</h3>
<button class="quiet" type="button" data-copy="line-${i}" aria-live="polite" hidden>Copy<span class="unseen"> ${name}</span></button></div>
<pre class="kept" tabindex="0" aria-labelledby="line-${i}-label"><code id="line-${i}">${text}</code></pre>`,
)}
</section>
<p class="actions"><a class="button" href="/organizations/${view.owner.organization_id}#key-${view.keyId}">Back to ${view.owner.name}</a></p>`,
  )
