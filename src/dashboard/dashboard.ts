import cookie from '@fastify/cookie'
import csrfProtection from '@fastify/csrf-protection'
import formbody from '@fastify/formbody'
import helmet from '@fastify/helmet'
import session from '@fastify/session'
import type { FastifyError, FastifyInstance, FastifyPluginAsync } from 'fastify'
import type { Logger } from 'pino'
import type { Finding } from '../administration/doctor/finding.ts'
import { createVisitorSteps } from '../administration/first-steps.ts'
import { InputFault } from '../administration/input.ts'
import { InvitationEnded } from '../administration/invitations.ts'
import { createSignInEvents } from '../administration/sign-ins.ts'
import { openUserDirectory } from '../administration/user-directory.ts'
import { isDatabaseAway } from '../call/unavailable.ts'
import { createPixelControls } from '../capabilities/index.ts'
import { Unavailable } from '../event-log/port.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused, LedgerUnavailable } from '../ledger/commit.ts'
import { assetOf, assetVersion } from './assets.ts'
import { ConnectionInsecure, nameCookies } from './cookies.ts'
import { createExamination } from './examination.ts'
import { capitalized } from './format.ts'
import { RoleForbids } from './gate.ts'
import { PasswordNotChosen } from './given-password.ts'
import { createHalfSignedIn, halfCookie } from './half-signed-in.ts'
import { createIdentityProvider, type ProviderSettings } from './identity-provider.ts'
import { invitationRoutes } from './invitation-routes.ts'
import { FormSentBefore } from './once.ts'
import { type Dashboard, PageMissing, sendPage, type WebhooksOutside } from './page.ts'
import { faultPage } from './pages/fault.ts'
import { openPositions } from './positions.ts'
import { providerRoutes } from './provider-routes.ts'
import { pageRoutes, visitorRoutes } from './routes.ts'
import {
  deviceCookie,
  formCookie,
  formOwner,
  providerCookie,
  sessionCookie,
  sessionLifetimeMs,
  sessionStore,
} from './session.ts'
import { createCodeAttempts, createSignIn } from './sign-in.ts'
import { createWorks } from './works.ts'

/** Rows that are behind for a moment are what a working projector looks like. */
const lateAfterDefaultMs = 10_000

type DashboardOptions = {
  readonly insecureCookies?: boolean
  readonly twoPerson: boolean
  readonly apiUrl?: string | null
  readonly outside: WebhooksOutside
  /** Where pixel hits are counted; undefined: in the database. */
  readonly redisUrl?: string | undefined
  readonly publicUrl?: string | null
  readonly provider?: ProviderSettings | null
  readonly dataSources: Dashboard['dataSources']
  readonly idleMinutes?: number
  /** What the command "doctor" looks at. */
  readonly examine: () => Promise<readonly Finding[]>
  /** How long rows may be behind the event log before pages say so. */
  readonly lateAfterMs?: number
}

/**
 * The pages people click: a plugin of the host that also answers calls. Parsers, cookies, headers and errors of the
 * pages end at the plugin's border; calls on the same host neither get a cookie nor an HTML error.
 *
 * Not a second API: it has no JSON, and whatever it changes goes through the operators' functions in `administration`.
 */
export const dashboard =
  (
    foundation: Foundation,
    logger: Logger,
    {
      insecureCookies = false,
      twoPerson,
      apiUrl = null,
      publicUrl = null,
      provider = null,
      outside,
      redisUrl,
      dataSources,
      idleMinutes = 60,
      examine,
      lateAfterMs = lateAfterDefaultMs,
    }: DashboardOptions,
  ): FastifyPluginAsync =>
  async (host) => {
    const users = openUserDirectory(foundation)
    const signIns = createSignInEvents(foundation, logger)
    host.addHook('onClose', signIns.close)
    const pixel = createPixelControls({ ...foundation, redisUrl, logger })
    host.addHook('onClose', pixel.close)
    const positions = openPositions(foundation, { logger })
    host.addHook('onClose', async () => positions.close())
    const context: Dashboard = {
      ...{ users, signIns },
      foundation,
      logger,
      twoPerson,
      apiUrl,
      outside,
      pixel,
      publicUrl,
      provider: provider === null ? null : createIdentityProvider(provider),
      dataSources,
      idleMinutes,
      works: createWorks(),
      ...{ positions, lateAfterMs, examination: createExamination(examine) },
      firstSteps: createVisitorSteps(foundation),
      codeAttempts: createCodeAttempts(),
      halfSignedIn: createHalfSignedIn(foundation.secrets.sealer('dashboard half signed in')),
      signIn: createSignIn(foundation.pool, users, foundation.secrets.sealer('dashboard device')),
    }
    await host.register(helmet, securityHeaders)
    host.setErrorHandler((error: FastifyError, request, reply) => {
      const fault = faultShown(error)
      if (fault.status === 503) reply.header('retry-after', awaySeconds)
      if (fault.status >= 500) logger.error({ err: error, path: request.routeOptions.url }, 'a page failed')
      return sendPage(reply.code(fault.status), faultPage(fault))
    })
    assetRoute(host)
    // People get a page that says so; a client that did not ask for HTML gets the host's own answer.
    host.get('/*', (request, reply) => {
      if (request.headers.accept?.includes('text/html') !== true) return reply.callNotFound()
      throw new PageMissing()
    })
    await host.register((pages) => openPages(pages, context, insecureCookies))
  }

const assetRoute = (host: FastifyInstance): void => {
  host.get<AssetParams>('/assets/:version/:name', (request, reply) => {
    const asset = assetOf(request.params.name)
    if (asset === undefined) throw new PageMissing()
    // What another release asked for may be kept by no one under its address.
    const kept = request.params.version === assetVersion
    return reply
      .type(asset.type)
      .header('cache-control', kept ? 'public, max-age=31536000, immutable' : 'no-cache')
      .send(asset.text)
  })
}

const openPages = async (
  pages: FastifyInstance,
  context: Dashboard,
  insecureCookies: boolean,
): Promise<void> => {
  const { pool, secrets } = context.foundation
  // Forms and nothing else: the host's parser would hand on any body as text.
  pages.removeAllContentTypeParsers()
  await pages.register(formbody)
  await pages.register(cookie)
  nameCookies(pages, {
    names: [sessionCookie, formCookie, deviceCookie, halfCookie, providerCookie],
    insecure: insecureCookies,
  })
  await pages.register(session, {
    // The text is no API key's secret, so the HMAC under the keys' pepper is known to no one and the same in every process.
    // Of several the first signs, and all are believed.
    secret: secrets.cookieSecrets('dashboard session cookie'),
    store: sessionStore(pool, context.idleMinutes),
    cookieName: sessionCookie,
    cookie: { path: '/', httpOnly: true, sameSite: 'lax', secure: 'auto', maxAge: sessionLifetimeMs },
    saveUninitialized: false,
    rolling: false,
  })
  await pages.register(csrfProtection, {
    // Not kept in the session: the sign-in form would then make a session of every visit.
    sessionPlugin: '@fastify/cookie',
    cookieKey: formCookie,
    cookieOpts: { path: '/', httpOnly: true, sameSite: 'strict', secure: 'auto' },
    // The same in every process, before a rotation of SECRET_KEY and after.
    csrfOpts: { hmacKey: secrets.memoryHmac('dashboard form token').toString('base64url'), userInfo: true },
    getUserInfo: formOwner,
    getToken: ({ body }) =>
      typeof body === 'object' && body !== null && '_csrf' in body && typeof body._csrf === 'string'
        ? body._csrf
        : undefined,
  })
  pages.addHook('preHandler', (request, reply, done) => {
    if (request.method === 'GET') return done()
    pages.csrfProtection(request, reply, done)
  })
  pages.decorateRequest('docsUrl', context.apiUrl === null ? null : `${context.apiUrl}/docs`)
  visitorRoutes(pages, context)
  invitationRoutes(pages, context)
  if (context.provider !== null) providerRoutes(pages, context, context.provider)
  await pages.register(async (own) => pageRoutes(own, context))
}

type AssetParams = { Params: { version: string; name: string } }

const awaySeconds = 5

const securityHeaders = {
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      imgSrc: ["'self'"],
      connectSrc: ["'self'"],
      formAction: ["'self'"],
      baseUri: ["'none'"],
      frameAncestors: ["'none'"],
    },
  },
  frameguard: { action: 'deny' },
  // Sibling hosts are not ours to promise for.
  strictTransportSecurity: { maxAge: 31_536_000, includeSubDomains: false },
} as const

type ShownFault = { readonly status: number; readonly title: string; readonly advice: string }

/** Who asks, or over what, may not do this. */
const forbiddenShown = (error: Error): ShownFault | null => {
  if (error instanceof PasswordNotChosen)
    return {
      status: 403,
      title: 'Choose a password first',
      advice:
        'Your password was made for you. Nothing was done. Open the page behind your name and choose one of your own; everything else opens then.',
    }
  if (error instanceof RoleForbids) return { status: 403, title: 'Not for you', advice: error.message }
  if (error instanceof ConnectionInsecure)
    return {
      status: 403,
      title: 'Only over HTTPS',
      advice:
        'This connection is not encrypted, and passwords would cross the network in the clear. Use https://. Operators: set TLS_CERT and TLS_KEY, or TRUSTED_PROXIES where a proxy ends TLS; INSECURE_COOKIES=1 allows it nevertheless.',
    }
  return null
}

const faultShown = (error: FastifyError): ShownFault => {
  if (error instanceof PageMissing)
    return {
      status: 404,
      title: 'Page not found',
      advice: 'There is nothing at this address. It may have been mistyped.',
    }
  if (error instanceof InvitationEnded)
    return {
      status: 404,
      title: 'This link opens nothing',
      advice:
        'Links of invitations work once and for 72 hours. It may have been used, withdrawn, replaced by another, or mistyped. Ask the person who sent it for a new one; who has a password already signs in.',
    }
  if (error.code === 'FST_CSRF_MISSING_SECRET' || error.code === 'FST_CSRF_INVALID_TOKEN')
    return {
      status: 403,
      title: 'The form was refused',
      advice:
        'It is out of date, or did not come from this site. Nothing was changed. Open the page again and send the form from there; cookies must be allowed.',
    }
  if (error instanceof FormSentBefore)
    return {
      status: 409,
      title: 'Sent before',
      advice:
        'This form was sent before, and nothing was done a second time. Open the page again to see what became of it, and to do more.',
    }
  if (error instanceof CommandRefused)
    return { status: 422, title: 'Not done', advice: `${capitalized(error.message)}.` }
  const forbidden = forbiddenShown(error)
  if (forbidden !== null) return forbidden
  if (error instanceof LedgerUnavailable || error instanceof Unavailable)
    return {
      status: 503,
      title: 'Not available right now',
      advice: 'The event log cannot be reached. Try again in a moment.',
    }
  if (error instanceof InputFault)
    return {
      status: 422,
      title: 'Not an address of ours',
      advice: `${capitalized(error.field)}: ${error.message}.`,
    }
  if (isDatabaseAway(error))
    return {
      status: 503,
      title: 'Database away',
      advice: 'The database cannot be reached. Try again in a moment.',
    }
  const status = error.statusCode ?? 500
  return status >= 400 && status < 500
    ? {
        status,
        title: 'The request was refused',
        advice: 'It was not what this page understands. Nothing was changed.',
      }
    : {
        status: 500,
        title: 'Something went wrong',
        advice: 'The fault has been logged. Look at the page again before you repeat what you did.',
      }
}
