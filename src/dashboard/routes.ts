import type { FastifyInstance } from 'fastify'
import { callerAddress } from '../guard/caller-address.ts'
import { declaredRoutes } from './declared-routes.ts'
import { sealedDeviceOf } from './devices.ts'
import { enter } from './entering.ts'
import { formOf } from './form.ts'
import { gate, named } from './gate.ts'
import { endWhenIdle, idleNotice } from './idle.ts'
import { movedRoutes } from './moved.ts'
import { nextOf } from './next.ts'
import type { Dashboard } from './page.ts'
import { callRoutes } from './pages/call.ts'
import { callsRoutes } from './pages/calls.ts'
import { codeRoutes } from './pages/code.ts'
import { commandRoutes } from './pages/commands.ts'
import { keyPageRoutes } from './pages/key.ts'
import { operationsRoutes } from './pages/operations.ts'
import { organizationRoute } from './pages/organization.ts'
import { overviewRoutes } from './pages/overview.ts'
import { ownRoutes } from './pages/own.ts'
import { searchRoutes } from './pages/search.ts'
import { secondFactorRoutes } from './pages/second-factor.ts'
import { sendSignIn } from './pages/sign-in.ts'
import { usageRoutes } from './pages/usage.ts'
import { pickRoutes } from './picking.ts'
import { setRows } from './rows.ts'
import { sessionCookie } from './session.ts'
import { timesRoutes } from './times.ts'

/** The routes of most pages. GET requests change nothing. */

/** Routes for everyone: signing in and out. */
export const visitorRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { signIn, signIns, logger } = context
  pages.get('/login', async (request, reply) => {
    const query = formOf(request.query)
    const next = nextOf(query.text('next'))
    if (request.session.user !== undefined) return reply.redirect(next, 303)
    const notice =
      query.text('invited') === 'yes'
        ? 'Your password is set. Sign in with it.'
        : query.text('unsent') === 'yes'
          ? 'You were signed out before your form arrived, so nothing was changed. Sign in, then fill in the form again.'
          : idleNotice(request, context)
    return sendSignIn(context, request, reply, { next, notice })
  })

  pages.post('/login', async (request, reply) => {
    const form = formOf(request.body)
    const [name, next] = [form.text('name').trim(), nextOf(form.text('next'))]
    const address = callerAddress(request)
    const verdict = await signIn({
      name,
      password: form.text('password'),
      address,
      device: sealedDeviceOf(request),
    })
    if (verdict.kind === 'signed_in') {
      return enter(context, request, reply, { ...verdict, next, way: 'password' })
    }
    signIns.refused({ user: verdict.user, address, reason: verdict.kind })
    // The name is not logged, because people sometimes type their password into this field.
    logger.warn({ address, reason: verdict.kind }, 'dashboard: sign-in refused')
    const message =
      verdict.kind === 'limited'
        ? `Too many attempts. Try again in ${verdict.retryAfterSeconds} seconds.`
        : 'The user name or the password is wrong.'
    if (verdict.kind === 'limited') reply.header('retry-after', verdict.retryAfterSeconds)
    reply.code(verdict.kind === 'limited' ? 429 : 401)
    return sendSignIn(context, request, reply, { next, name, fault: { field: null, message } })
  })

  codeRoutes(pages, context)

  pages.post('/logout', async (request, reply) => {
    const { user } = request.session
    await request.session.destroy()
    if (user !== undefined) await signIns.signedOut(user)
    return reply.clearCookie(sessionCookie, { path: '/' }).redirect('/login', 303)
  })
}

/** Routes for signed-in users: all other pages. */
export const pageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.decorateRequest('standing', null)
  pages.addHook('onRoute', named)
  pages.addHook('onRequest', gate(context))
  endWhenIdle(pages, context)
  setRows(pages, context)
  overviewRoutes(pages, context)
  organizationRoute(pages, context)
  keyPageRoutes(pages, context)
  callRoutes(pages, context)
  callsRoutes(pages, context)
  usageRoutes(pages, context)
  declaredRoutes(pages, context)
  commandRoutes(pages, context)
  pickRoutes(pages, context)
  searchRoutes(pages, context)
  operationsRoutes(pages, context)
  ownRoutes(pages, context)
  timesRoutes(pages)
  secondFactorRoutes(pages, context)
  movedRoutes(pages, context)
}
