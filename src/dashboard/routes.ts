import type { FastifyInstance } from 'fastify'
import { testOrganizationOf } from '../events/test-organization.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { callsRoutes } from './calls-routes.ts'
import { declaredRoutes, newestOf } from './declared-routes.ts'
import { sealedDeviceOf } from './devices.ts'
import { enter } from './entering.ts'
import { formOf } from './form.ts'
import { gate, named } from './gate.ts'
import { endWhenIdle, idleNotice } from './idle.ts'
import { movedRoutes } from './moved.ts'
import { nextOf } from './next.ts'
import { rangeFigures } from './overview.ts'
import { accountAt, csrfOf, type Dashboard, type OrganizationParams, sendPage, viewerOf } from './page.ts'
import { callRoutes } from './pages/call.ts'
import { codeRoutes } from './pages/code.ts'
import { commandRoutes } from './pages/commands.ts'
import { keyPageRoutes } from './pages/key.ts'
import { operationsRoutes } from './pages/operations.ts'
import { organizationPage } from './pages/organization.ts'
import { overviewRoutes } from './pages/overview.ts'
import { ownRoutes } from './pages/own.ts'
import { rangeOrFault } from './pages/ranges.ts'
import { searchRoutes } from './pages/search.ts'
import { secondFactorRoutes } from './pages/second-factor.ts'
import { signInPage } from './pages/sign-in.ts'
import { usageRoutes } from './pages/usage.ts'
import { pickRoutes } from './picking.ts'
import { isRegistered, keysOf, rowsOf } from './queries.ts'
import { tellRows } from './rows.ts'
import { sessionCookie } from './session.ts'
import { timesRoutes } from './times.ts'
import { usedUpOf } from './used-up.ts'

/** The routes of most pages. GET requests change nothing. */

const keysMax = 200
const newestLines = 20

/** Routes for everyone: signing in and out. */
export const visitorRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { signIn, signIns, logger, firstSteps, provider } = context
  pages.get('/login', async (request, reply) => {
    const query = formOf(request.query)
    const next = nextOf(query.text('next'))
    if (request.session.user !== undefined) return reply.redirect(next, 303)
    const told = {
      notice:
        query.text('invited') === 'yes'
          ? 'Your password is set. Sign in with it.'
          : idleNotice(request, context),
      steps: await firstSteps(),
      provider: provider?.label ?? null,
      docsUrl: request.docsUrl,
    }
    return sendPage(reply, signInPage({ csrf: csrfOf(request, reply), next, name: '', fault: null, ...told }))
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
    return sendPage(
      reply,
      signInPage({
        csrf: csrfOf(request, reply),
        next,
        name,
        fault: { field: null, message },
        docsUrl: request.docsUrl,
        steps: await firstSteps(),
        provider: provider?.label ?? null,
      }),
    )
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
  tellRows(pages, context)
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

const organizationRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation
  pages.get<OrganizationParams>('/organizations/:organization', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const nowMs = Date.now()
    const { range, fault } = await rangeOrFault(pool, request.query, id)
    const viewer = viewerOf(request, reply)
    const [keys, [tests], lines, usedUp, figures] = await Promise.all([
      rowsOf(pool, keysOf(id, { max: keysMax + 1, nowMs })),
      rowsOf(pool, isRegistered(testOrganizationOf(id))),
      newestOf('ledger lines', context, request, { viewer, account, max: newestLines }),
      usedUpOf(pool, account, nowMs),
      rangeFigures(pool, range, { organizationId: id, by: 'capability' }),
    ])
    const page = organizationPage({
      viewer,
      account,
      keys: keys.slice(0, keysMax),
      moreKeys: keys.length > keysMax,
      hasTests: tests?.registered === true,
      atMs: nowMs,
      lines,
      use: { ...usedUp, ...figures, range, fault },
    })
    return sendPage(fault === null ? reply : reply.code(422), page)
  })
}
