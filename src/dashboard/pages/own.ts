import type { FastifyInstance, FastifyRequest } from 'fastify'
import { InputFault } from '../../administration/input.ts'
import { provedOperator } from '../../administration/operator.ts'
import { type AccountNotice, accountNotices } from '../../administration/users/account-notices.ts'
import { checkPassword } from '../../administration/users/chosen-password.ts'
import { changePassword } from '../../administration/users/user-changes.ts'
import { callerAddress } from '../../guard/caller-address.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { sealedDeviceOf } from '../devices.ts'
import { type Form, formOf } from '../form.ts'
import { copyable, instant, sentence, utc } from '../format.ts'
import { mustChoose, withNext } from '../given-password.ts'
import { type Html, html } from '../html.ts'
import { nextOf } from '../next.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from '../page.ts'
import { guessableNames } from '../queries.ts'
import { endOtherSessions, SignInOvertaken, sessionCookie, sessionsOf } from '../session.ts'
import {
  csrfField,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  newPasswordField,
  presentPassword,
  table,
  type Viewer,
} from './layout.ts'

const noticesShownMs = 90 * 24 * 60 * 60 * 1_000
const noticesShownMax = 20

/** A time in milliseconds, from the URL; null if it is absent, or not a time. */
const timeOf = (text: string): number | null => (/^\d{13}$/.test(text) ? Number(text) : null)

/** A user's own page: role, password, sessions. */
export const ownRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation
  const given = (request: FastifyRequest): boolean =>
    request.standing !== null && mustChoose(context.settings, request, request.standing)
  const shown = async (
    request: FastifyRequest,
    viewer: ReturnType<typeof viewerOf>,
    fault: FormFault | null,
  ) =>
    ownPage({
      viewer,
      organizationId: request.standing?.organizationId ?? null,
      given: given(request),
      next: nextOf(formOf(request.method === 'GET' ? request.query : request.body).text('next')),
      secondFactor: (await context.users.secondFactor(viewer.user)) !== null,
      sessions: await sessionsOf(pool, viewer.user, request.session.sessionId),
      notices: await accountNotices(context.foundation, {
        user: viewer.user,
        sinceMs: Date.now() - noticesShownMs,
        max: noticesShownMax,
      }),
      sinceMs: request.method === 'GET' ? timeOf(formOf(request.query).text('since')) : null,
      fault,
    })

  pages.get('/me', async (request, reply) =>
    sendPage(reply, await shown(request, viewerOf(request, reply), null)),
  )

  pages.post('/me/password', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      newPassword(context, request, viewer.user, form),
    )
    if ('fault' in outcome) return sendPage(reply.code(422), await shown(request, viewer, outcome.fault))
    context.devices.seen(request, reply, viewer.user)
    const next = nextOf(formOf(request.body).text('next'))
    const wasGiven = given(request)
    if (await continueSession(request, outcome.done))
      return reply.redirect(next === '/' && !wasGiven ? '/me' : next, 303)
    return reply.clearCookie(sessionCookie, { path: '/' }).redirect(withNext('/login', next), 303)
  })

  pages.post('/me/sessions/end', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, () =>
      endOtherSessions(pool, viewer.user, request.session.sessionId),
    )
    return 'fault' in outcome
      ? sendPage(reply.code(422), await shown(request, viewer, outcome.fault))
      : reply.redirect('/me', 303)
  })
}

/** Begins a new session, because a new password has ended all earlier ones. Returns false if the password has changed again since then. */
const continueSession = async (request: FastifyRequest, { mark }: { mark: string }): Promise<boolean> => {
  const { user, byProvider } = request.session
  await request.session.regenerate()
  Object.assign(request.session, { user, byProvider, mark })
  try {
    await request.session.save()
    return true
  } catch (error) {
    if (!(error instanceof SignInOvertaken)) throw error
    await request.session.destroy()
    return false
  }
}

/**
 * Checks the current password, because another person could use an open session. Throws `InputFault` if the password is wrong, and
 * `CommandRefused` after too many attempts.
 */
export const checkPresentPassword = async (
  { signIn }: Dashboard,
  request: FastifyRequest,
  user: string,
  form: Form,
): Promise<void> => {
  const verdict = await signIn({
    name: user,
    password: form.text('present'),
    address: callerAddress(request),
    device: sealedDeviceOf(request),
  })
  if (verdict.kind === 'limited')
    throw new CommandRefused(`too many attempts; try again in ${verdict.retryAfterSeconds} seconds`)
  if (verdict.kind !== 'signed_in') throw new InputFault('present', 'this is not your current password')
}

const newPassword = async (
  context: Dashboard,
  request: FastifyRequest,
  user: string,
  form: Form,
): Promise<{ mark: string }> => {
  const organizationId = request.standing?.organizationId ?? null
  const names = await guessableNames(context.foundation.pool, { user, organizationId })
  const chosen = await checkPassword('new', form.text('new'), names)
  if (chosen !== form.text('again')) throw new InputFault('again', 'the two new passwords differ')
  await checkPresentPassword(context, request, user, form)
  if (chosen === form.text('present'))
    throw new InputFault('new', 'this is your current password; choose a different one')
  return changePassword(context.foundation, { name: user, chosen, ...provedOperator(user) })
}

/** A user's own data and forms. */
type OwnView = {
  readonly viewer: Viewer
  /** The organization of a partner's user. */
  readonly organizationId: string | null
  /** Whether the current password was generated. If so, the user can open no other page before choosing a new password. */
  readonly given: boolean
  /** The page that the user requested. */
  readonly next: string
  readonly secondFactor: boolean
  readonly sessions: Awaited<ReturnType<typeof sessionsOf>>
  /** Recent changes to the account's security, newest first. */
  readonly notices: readonly AccountNotice[]
  /** The time of the last sign-in on this device if the account has changed since then; otherwise null. */
  readonly sinceMs: number | null
  readonly fault: FormFault | null
}

const ownPage = (view: OwnView): Html => {
  const { viewer, organizationId, next, secondFactor, notices, sinceMs } = view
  return layout({
    title: viewer.user,
    viewer,
    main: html`<h1>${viewer.user}</h1>
${figures([
  ['Role', viewer.role],
  ['Organization', organizationId === null ? 'all' : copyable(organizationId)],
  [
    'Second factor',
    html`${secondFactor ? 'set up' : 'none'} · <a href="/me/second-factor">${secondFactor ? 'Change it' : 'Set it up'}</a>`,
  ],
])}
${sinceMs !== null && changesNotice(notices, sinceMs, next)}
${passwordSection(view)}
${timesSection(viewer)}
${securitySection(notices)}
${sessionsSection(view)}`,
  })
}

const passwordSection = ({
  viewer,
  given,
  next,
  fault,
}: OwnView): Html => html`<section class="narrow" aria-labelledby="password">
<h2 id="password">${given ? 'Choose your password' : 'New password'}</h2>
${
  given &&
  html`<p class="notice" role="status">Your current password was generated, and others may have seen it. Choose your own password before you open other pages.</p>`
}
<p class="note">A new password ends your other sessions. This session continues, and tokens for the command line stay valid.</p>
${faultNotice(fault)}
<form class="fields" method="post" action="/me/password">${formFields(viewer)}
<input type="hidden" name="next" value="${next}">
<input type="text" name="username" value="${viewer.user}" autocomplete="username" hidden readonly>
${presentPassword(fault)}
${newPasswordField('new', 'New password, at least 15 characters', fault)}
${newPasswordField('again', 'Repeat the new password', fault)}
<p class="actions"><button type="submit">Change password</button></p>
</form>
</section>`

const timesSection = (viewer: Viewer): Html => html`<section aria-labelledby="times-choice">
<h2 id="times-choice">Times</h2>
<p class="note">Choose how pages in this browser show times. Files, days, months and form fields stay in UTC. Local times need JavaScript.</p>
<form method="post" action="/me/times">${csrfField(viewer.csrf)}
<p class="actions">${(
  [
    ['utc', 'Show UTC'],
    ['local', 'Show local time'],
  ] as const
).map(
  ([times, name]) =>
    html`<button class="quiet" type="submit" name="times" value="${times}"${times === viewer.times && html` aria-pressed="true"`}>${name}</button> `,
)}</p></form>
</section>`

const securitySection = (notices: readonly AccountNotice[]): Html => html`<section aria-labelledby="security">
<h2 id="security">Security</h2>
${
  notices.length === 0
    ? html`<p class="empty">No changes in the last 90 days.</p>`
    : table({
        caption: 'Changes in the last 90 days, newest first',
        rows: notices,
        columns: [
          { head: 'Time (UTC)', cell: ({ at }) => instant(at) },
          { head: 'Change', cell: ({ says }) => sentence(says) },
        ],
      })
}
</section>`

const sessionsSection = ({ viewer, sessions }: OwnView): Html => html`<section aria-labelledby="sessions">
<h2 id="sessions">Sessions</h2>
${table({
  caption: 'Open sessions',
  rows: sessions,
  columns: [
    { head: 'Since (UTC)', cell: ({ createdAt }) => instant(createdAt) },
    { head: 'Until (UTC)', cell: ({ expiresAt }) => instant(expiresAt) },
    { head: 'Session', cell: ({ own }) => (own ? 'this one' : 'another browser') },
  ],
})}
${
  sessions.length > 1 &&
  html`<form method="post" action="/me/sessions/end">${formFields(viewer)}
<p class="actions"><button class="quiet" type="submit">End all other sessions</button></p></form>`
}
</section>`

const changesNotice = (notices: readonly AccountNotice[], sinceMs: number, next: string): Html => {
  const since = notices.filter(({ at }) => at.getTime() >= sinceMs)
  return html`<section class="notice" role="status" aria-labelledby="changes">
<h2 id="changes">Since you last signed in on this device</h2>
<p>Your account changed after ${utc(new Date(sinceMs))}:</p>
<ul>${since.map(({ at, says }) => html`<li>${instant(at)} ${sentence(says)}</li>`)}</ul>
<p>If you did not make these changes, change your password, end the other sessions and inform an administrator.</p>
<p class="actions"><a class="button" href="${next}">Continue</a></p>
</section>`
}
