import { encode } from 'uqr'
import { instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import {
  crumbs,
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  type Viewer,
} from './layout.ts'

/** A person's own second factor: set it up, create new recovery codes, remove it. */

const password = (id: string, fault: FormFault | null): Html =>
  html`<p><label for="${id}">Current password</label>
<input id="${id}" name="present" type="password" required maxlength="1024" autocomplete="current-password"${described('present', fault)}></p>`

const code = (id: string, label: string, fault: FormFault | null): Html =>
  html`<p><label for="${id}">${label}</label>
<input id="${id}" name="code" autocomplete="one-time-code" autocapitalize="none" spellcheck="false" required maxlength="40"${described('code', fault)}></p>`

/** Scanners need the white margin around the picture (ISO/IEC 18004: four modules), in dark mode as well. */
const quietModules = 4

const picture = (address: string): Html => {
  const { data, size } = encode(address, { ecc: 'M', border: quietModules })
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ''))).join('')
  return html`<svg class="qr" role="img" aria-label="The same as a picture, for the camera of your device" viewBox="0 0 ${size} ${size}" shape-rendering="crispEdges"><rect width="${size}" height="${size}" fill="#fff"/><path d="${path}" fill="#000"/></svg>`
}

export const setUpPage = ({
  viewer,
  secret,
  address,
  sealed,
  required,
  fault,
}: {
  readonly viewer: Viewer
  readonly secret: string
  /** The content of the QR code. */
  readonly address: string
  /** The secret, for the form to send back. */
  readonly sealed: string
  /** Until there is one, nothing else opens. */
  readonly required: boolean
  readonly fault: FormFault | null
}): Html =>
  layout({
    title: 'Second factor',
    viewer,
    main: html`${crumbs([['/me', viewer.user], 'Second factor'])}
<h1>Set up a second factor</h1>
${required && html`<p class="notice" role="status">Your role requires a second factor. Every other page opens when you have set one up.</p>`}
<p class="note">Scan the picture with an authenticator app, or type the secret into it. It takes effect when you type a code that the app shows: from then on a sign-in needs your password and a code. Your other sign-ins end.</p>
<div class="narrow">
${picture(address)}
<p>Secret</p>
<pre class="kept" tabindex="0" aria-label="Secret"><code>${secret.replaceAll(/(.{4})(?=.)/g, '$1 ')}</code></pre>
${faultNotice(fault)}
<form class="fields" method="post" action="/me/second-factor">${formFields(viewer)}
<input type="hidden" name="sealed" value="${sealed}">
${password('present', fault)}
${code('code', 'Current code of the app', fault)}
<p class="actions"><button type="submit">Set it up</button>${!required && html` <a href="/me">Cancel</a>`}</p>
</form>
</div>`,
  })

export const factorPage = ({
  viewer,
  setAt,
  codesLeft,
  fault,
}: {
  readonly viewer: Viewer
  readonly setAt: Date
  readonly codesLeft: number
  /** `form`: which of the two forms it is about. */
  readonly fault: (FormFault & { readonly form: 'codes' | 'remove' }) | null
}): Html => {
  const [ofCodes, ofRemove] = [
    fault?.form === 'codes' ? fault : null,
    fault?.form === 'remove' ? fault : null,
  ]
  return layout({
    title: 'Second factor',
    viewer,
    main: html`${crumbs([['/me', viewer.user], 'Second factor'])}
<h1>Second factor</h1>
${figures([
  ['Set up (UTC)', instant(setAt)],
  ['Recovery codes left', codesLeft],
])}
<section class="narrow" aria-labelledby="codes">
<h2 id="codes">New recovery codes</h2>
<p class="note">You get ten new ones. Those of before open nothing any more.</p>
${faultNotice(ofCodes)}
<form class="fields" method="post" action="/me/second-factor/codes">${formFields(viewer)}
${password('present-codes', ofCodes)}
${code('code-codes', 'Code from your app, or a recovery code', ofCodes)}
<p class="actions"><button type="submit">Make new ones</button></p>
</form>
</section>
<section class="narrow" aria-labelledby="remove">
<h2 id="remove">Remove it</h2>
<p class="note">A sign-in then needs your password alone, and the recovery codes open nothing. For another device, remove it and set it up again.</p>
${faultNotice(ofRemove)}
<form class="fields" method="post" action="/me/second-factor/remove">${formFields(viewer)}
${password('present-remove', ofRemove)}
${code('code-remove', 'Code from your app, or a recovery code', ofRemove)}
<p class="actions"><button class="danger" type="submit">Remove it</button></p>
</form>
</section>`,
  })
}

/** Shown once, as the answer to the form that created them. */
export const recoveryCodesPage = ({
  viewer,
  codes,
}: {
  readonly viewer: Viewer
  readonly codes: readonly string[]
}): Html =>
  layout({
    title: 'Recovery codes',
    viewer,
    main: html`${crumbs([['/me', viewer.user], 'Second factor'])}
<h1>Recovery codes</h1>
<p class="notice" role="status">Your second factor is in force. These codes are shown this once, and kept nowhere. Each opens once, in place of a code of the app. Keep them where your device is not.</p>
<pre class="kept" tabindex="0" id="recovery-codes" aria-label="Recovery codes"><code>${codes.map((one) => `${one}\n`).join('')}</code></pre>
<p class="actions"><button type="button" data-copy="recovery-codes" hidden>Copy</button> <a class="button" href="/me/second-factor">I have saved them</a></p>`,
  })
