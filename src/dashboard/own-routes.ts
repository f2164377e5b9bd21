import type { FastifyInstance, FastifyRequest } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { accountNotices } from '../administration/users/account-notices.ts'
import { checkPassword } from '../administration/users/chosen-password.ts'
import { changePassword } from '../administration/users/user-changes.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { sealedDeviceOf } from './devices.ts'
import { type Form, formOf } from './form.ts'
import { mustChoose, withNext } from './given-password.ts'
import { nextOf } from './next.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from './page.ts'
import type { FormFault } from './pages/layout.ts'
import { ownPage } from './pages/own.ts'
import { guessableNames } from './queries.ts'
import { endOtherSessions, SignInOvertaken, sessionCookie, sessionsOf } from './session.ts'

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
