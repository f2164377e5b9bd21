import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { encode } from 'uqr'
import { InputFault } from '../../administration/input.ts'
import { provedOperator } from '../../administration/operator.ts'
import type { LoggedFactor } from '../../administration/users/operators.ts'
import {
  removeSecondFactor,
  renewRecoveryCodes,
  setSecondFactor,
} from '../../administration/users/second-factors.ts'
import { freshTotpSecret, totpAddress } from '../../administration/users/totp.ts'
import { recoveryCodesCount } from '../../events/second-factors.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { checkCode, codeRefusal } from '../entering.ts'
import { type Form, formOf } from '../form.ts'
import { instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from '../page.ts'
import { factorIsRequired } from '../required-factor.ts'
import { endOtherSessions } from '../session.ts'
import {
  crumbs,
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  presentPassword,
  type Viewer,
} from './layout.ts'
import { checkPresentPassword } from './own.ts'

/** A user's own second factor. Each form asks for the password, because another person could use an open session. */
export const secondFactorRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, users, devices } = context
  const path = '/me/second-factor'

  pages.get(path, async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const factor = await users.secondFactor(viewer.user)
    return factor === null
      ? sendSetUp(context, request, reply, { secret: freshTotpSecret(), fault: null })
      : sendFactor(request, reply, factor, null)
  })

  pages.post(path, async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const secret = sealerOf(context).open(formOf(request.body).text('sealed'), contextOf(request))
    const outcome = await attemptOnce(context, request, async (form) => {
      if (secret === null) throw new CommandRefused('the form has expired; add the new secret to your app')
      await checkPresentPassword(context, request, viewer.user, form)
      const asked = { user: viewer.user, secret, typed: form.text('code'), ...provedOperator(viewer.user) }
      const set = await setSecondFactor(foundation, asked, Date.now())
      await endOtherSessions(foundation.pool, viewer.user, request.session.sessionId)
      return set
    })
    if ('done' in outcome) {
      const { codes, factorId } = outcome.done
      devices.seen(request, reply, viewer.user, { factorId })
      return sendPage(reply, recoveryCodesPage({ viewer, codes }))
    }
    reply.code(422)
    const { fault } = outcome
    return sendSetUp(context, request, reply, { secret: secret ?? freshTotpSecret(), fault })
  })

  const changing =
    <Done>(form: 'codes' | 'remove', change: (user: string) => Promise<Done>) =>
    async (
      request: FastifyRequest,
      reply: FastifyReply,
    ): Promise<{ done: Done } | { sent: FastifyReply }> => {
      const { user } = viewerOf(request, reply)
      const outcome = await attemptOnce(context, request, async (typed) => {
        await checkBoth(context, request, user, typed)
        return change(user)
      })
      if ('done' in outcome) {
        devices.seen(request, reply, user)
        return outcome
      }
      const factor = await users.secondFactor(user)
      if (factor === null) return { sent: reply.redirect(path, 303) }
      return { sent: sendFactor(request, reply.code(422), factor, { ...outcome.fault, form }) }
    }

  const renew = changing('codes', (user) => renewRecoveryCodes(foundation, { user, ...provedOperator(user) }))
  pages.post(`${path}/codes`, async (request, reply) => {
    const outcome = await renew(request, reply)
    if ('sent' in outcome) return outcome.sent
    return sendPage(reply, recoveryCodesPage({ viewer: viewerOf(request, reply), codes: outcome.done.codes }))
  })

  const remove = changing('remove', (user) =>
    removeSecondFactor(foundation, { user, reason: null, ...provedOperator(user) }),
  )
  pages.post(`${path}/remove`, async (request, reply) => {
    const outcome = await remove(request, reply)
    return 'sent' in outcome ? outcome.sent : reply.redirect('/me', 303)
  })
}

/**
 * The form contains the sealed secret, so that nothing is stored before the first correct code. The sealed secret is valid only in this session.
 */
const sealerOf = ({ foundation }: Dashboard) => foundation.secrets.sealer('dashboard second factor form')
const contextOf = ({ session }: FastifyRequest): string => `${session.user}/${session.sessionId}`

const sendSetUp = (
  context: Dashboard,
  request: FastifyRequest,
  reply: FastifyReply,
  { secret, fault }: { secret: string; fault: FormFault | null },
): FastifyReply => {
  const viewer = viewerOf(request, reply)
  return sendPage(
    reply,
    setUpPage({
      viewer,
      secret,
      fault,
      required: factorIsRequired(context.requiredFactor, viewer.role) && request.session.byProvider !== true,
      address: totpAddress({ secret, user: viewer.user }),
      sealed: sealerOf(context).seal(secret, contextOf(request)),
    }),
  )
}

const sendFactor = (
  request: FastifyRequest,
  reply: FastifyReply,
  { setAt, codesUsed }: LoggedFactor,
  fault: Parameters<typeof factorPage>[0]['fault'],
): FastifyReply =>
  sendPage(
    reply,
    factorPage({
      viewer: viewerOf(request, reply),
      fault,
      setAt: new Date(setAt),
      codesLeft: recoveryCodesCount - codesUsed.size,
    }),
  )

const checkBoth = async (
  context: Dashboard,
  request: FastifyRequest,
  user: string,
  form: Form,
): Promise<void> => {
  if ((await context.users.secondFactor(user)) === null)
    throw new CommandRefused('the second factor no longer exists')
  await checkPresentPassword(context, request, user, form)
  const outcome = await checkCode(context, request, { user, typed: form.text('code') })
  if (outcome.kind !== 'right') throw new InputFault('code', codeRefusal(outcome).replace(/\.$/, ''))
}

/** The pages on which users set up or remove their own second factor, or create new recovery codes. */

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

const setUpPage = ({
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
${presentPassword(fault)}
${code('code', 'Current code from the app', fault)}
<p class="actions"><button type="submit">Set it up</button>${!required && html` <a href="/me">Cancel</a>`}</p>
</form>
</div>`,
  })

const factorPage = ({
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
${presentPassword(ofCodes, 'present-codes')}
${code('code-codes', 'Code from your app, or a recovery code', ofCodes)}
<p class="actions"><button type="submit">Create new codes</button></p>
</form>
</section>
<section class="narrow" aria-labelledby="remove">
<h2 id="remove">Remove it</h2>
<p class="note">You then need only your password to sign in, and the recovery codes stop working. To use another device, remove the second factor and set it up again.</p>
${faultNotice(ofRemove)}
<form class="fields" method="post" action="/me/second-factor/remove">${formFields(viewer)}
${presentPassword(ofRemove, 'present-remove')}
${code('code-remove', 'Code from your app, or a recovery code', ofRemove)}
<p class="actions"><button class="danger" type="submit">Remove it</button></p>
</form>
</section>`,
  })
}

/** Recovery codes are shown only once, as the answer to the form that created them. */
const recoveryCodesPage = ({
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
