import { hrefOf } from '../declared.ts'
import type { FirstAnswer, FirstRun } from '../first-run.ts'
import { type Html, html } from '../html.ts'
import { formFields, type Viewer } from './layout.ts'

/** The first steps on the overview of a new installation, and the answer to its first call. */

export const firstRunSection = (viewer: Viewer, steps: FirstRun): Html => {
  const { call, ownKey, organizationId } = steps
  const issue = hrefOf({ name: 'key issue' }, { role: viewer.role, organizationId })
  return html`<section class="steps" aria-labelledby="first-steps">
<h2 id="first-steps">First steps</h2>
<ol>
<li><strong>Make a call</strong> ${mark(call !== null)}
${call === null && callForm(viewer, steps)}</li>
<li><strong>See what the call cost</strong>
<p>${
    call === null
      ? 'The link to the call appears here within seconds.'
      : html`<a href="/organizations/${call.organization_id}/calls/${call.request_id}">Open the call</a> to see its facts, its charge and the rule behind it.`
  }</p></li>
<li><strong>Issue your own key</strong> ${mark(ownKey)}
${!ownKey && issue !== null && html`<p><a href="${issue}">Issue a key</a> with the permissions and limits you choose.</p>`}</li>
</ol>
</section>`
}

const mark = (done: boolean): Html | false => done && html`<span class="mark good">done</span>`

const callForm = (viewer: Viewer, { curl, sends }: FirstRun): Html => html`${
  curl !== null &&
  html`<div class="heading"><p id="first-curl-label">${sends ? 'In a terminal, or with the button below:' : 'In a terminal, with your API key in place of YOUR_KEY:'}</p>
<button class="quiet" type="button" data-copy="first-curl" aria-live="polite" hidden>Copy<span class="unseen"> the call</span></button></div>
<pre class="kept" tabindex="0" aria-labelledby="first-curl-label"><code id="first-curl">${curl}</code></pre>`
}
${
  sends &&
  html`<form method="post" action="/first-call">${formFields(viewer)}
<p class="actions"><button type="submit">Send</button></p>
</form>`
}`

export const firstAnswerSection = (answer: FirstAnswer): Html =>
  answer.kind === 'failed'
    ? html`<p class="notice bad" role="alert">${answer.why} The call may have been charged, so look at the list of calls before you send another one.</p>`
    : html`<section aria-labelledby="first-answer">
<h2 id="first-answer">The answer</h2>
<p role="status">Status ${answer.status}${answer.cost !== null && html`, ${answer.cost} ${answer.cost === '1' ? 'credit' : 'credits'} charged`}.</p>
<pre class="kept" tabindex="0" aria-labelledby="first-answer"><code>${answer.body}</code></pre>
</section>`
