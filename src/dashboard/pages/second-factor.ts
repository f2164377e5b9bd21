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

/** The pages on which users set up or remove their own second factor, or create new recovery codes. */

const password = (id: string, fault: FormFault | null): Html =>
  html`<p><label for="${id}">Current password</label>
<input id="${id}" name="present" type="password" required maxlength="1024" autocomplete="current-password"${described('present', fault)}></p>`

const code = (id: string, label: string, fault: FormFault | null): Html =>
  html`<p><label for="${id}">${label}</label>
<input id="${id}" name="code" autocomplete="one-time-code" autocapitalize="none" spellcheck="false" required maxlength="40"${described('code', fault)}></p>`

/** Scanners need a white margin of four modules around the code (ISO/IEC 18004), in dark mode as well. */
const quietModules = 4

const picture = (address: string): Html => {
  const { data, size } = encode(address, { ecc: 'M', border: quietModules })
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ''))).join('')
  return html`<svg class="qr" role="img" aria-label="The secret as a QR code, for the camera of your device" viewBox="0 0 ${size} ${size}" shape-rendering="crispEdges"><rect width="${size}" height="${size}" fill="#fff"/><path d="${path}" fill="#000"/></svg>`
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
  /** The sealed secret, which the form sends back. */
  readonly sealed: string
  /** Whether the user can open no other page before the second factor is set up. */
  readonly required: boolean
  readonly fault: FormFault | null
}): Html =>
  layout({
    title: 'Second factor',
    viewer,
    main: html`${crumbs([['/me', viewer.user], 'Second factor'])}
<h1>Set up a second factor</h1>
${required && html`<p class="notice" role="status">Your role requires a second factor. Set one up before you open other pages.</p>`}
<p class="note">Scan the QR code with an authenticator app, or type the secret into the app. Then type the code that the app shows. From then on, you need your password and a code to sign in. Your other sessions end.</p>
<div class="narrow">
${picture(address)}
<p>Secret</p>
<pre class="kept" tabindex="0" aria-label="Secret"><code>${secret.replaceAll(/(.{4})(?=.)/g, '$1 ')}</code></pre>
${faultNotice(fault)}
<form class="fields" method="post" action="/me/second-factor">${formFields(viewer)}
<input type="hidden" name="sealed" value="${sealed}">
${password('present', fault)}
${code('code', 'Current code from the app', fault)}
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
  /** `form` is the form with the fault. */
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
<p class="note">You get ten new codes, and the previous ones stop working.</p>
${faultNotice(ofCodes)}
<form class="fields" method="post" action="/me/second-factor/codes">${formFields(viewer)}
${password('present-codes', ofCodes)}
${code('code-codes', 'Code from your app, or a recovery code', ofCodes)}
<p class="actions"><button type="submit">Create new codes</button></p>
</form>
</section>
<section class="narrow" aria-labelledby="remove">
<h2 id="remove">Remove it</h2>
<p class="note">You then need only your password to sign in, and the recovery codes stop working. To use another device, remove the second factor and set it up again.</p>
${faultNotice(ofRemove)}
<form class="fields" method="post" action="/me/second-factor/remove">${formFields(viewer)}
${password('present-remove', ofRemove)}
${code('code-remove', 'Code from your app, or a recovery code', ofRemove)}
<p class="actions"><button class="danger" type="submit">Remove it</button></p>
</form>
</section>`,
  })
}

/** Recovery codes are shown only once, as the answer to the form that created them. */
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
<p class="notice" role="status">Your second factor is set up. These recovery codes are shown only now. Each code works once, instead of a code from the app. Store them separately from your device.</p>
<pre class="kept" tabindex="0" id="recovery-codes" aria-label="Recovery codes"><code>${codes.map((one) => `${one}\n`).join('')}</code></pre>
<p class="actions"><button type="button" data-copy="recovery-codes" hidden>Copy</button> <a class="button" href="/me/second-factor">I have saved them</a></p>`,
  })
