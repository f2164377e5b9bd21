import cookie from '@fastify/cookie'
import csrfProtection from '@fastify/csrf-protection'
import formbody from '@fastify/formbody'
import helmet from '@fastify/helmet'
import session from '@fastify/session'
import type { FastifyError, FastifyInstance, FastifyPluginAsync } from 'fastify'
import type { Logger } from 'pino'
import { createSignInEvents } from '../administration/users/sign-ins.ts'
import { openUserDirectory } from '../administration/users/user-directory.ts'
import { retryAfterSeconds } from '../call/waiting.ts'
import { createPixelControls } from '../capabilities/index.ts'
import { createOutage } from '../concurrency/outage.ts'
import { sendFile } from '../documentation/file.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { assetOf, assetVersion } from './assets.ts'
import { nameCookies } from './cookies.ts'
import { createDevices, deviceCookie } from './devices.ts'
import { faultShown } from './faults.ts'
import { createHalfSignedIn, halfCookie } from './half-signed-in.ts'
import { createIdentityProvider, type ProviderSettings } from './identity-provider.ts'
import { type Dashboard, PageMissing, sendPage } from './page.ts'
import { faultPage } from './pages/fault.ts'
import { invitationRoutes } from './pages/invitation.ts'
import { providerRoutes } from './provider-routes.ts'
import { pageRoutes, visitorRoutes } from './routes.ts'
import {
  formCookie,
  formOwner,
  providerCookie,
  sessionCookie,
  sessionLifetimeMs,
  sessionStore,
} from './session.ts'
import { createCodeAttempts, createSignIn } from './sign-in.ts'
import { timesCookie } from './times.ts'
import { createWorks } from './works.ts'

/** The lag above which pages show a notice. Rows lag briefly even when the projector works normally. */
const lateAfterDefaultMs = 10_000
/**
 * The interval at which the lag is measured even if no page is requested. Otherwise, the next page could not show the age of a missing event.
 */
const lagLookMs = 5_000

type DashboardOptions = Pick<Dashboard, 'settings' | 'twoPerson' | 'outside' | 'health'> &
  Partial<
    Pick<Dashboard, 'requiredFactor' | 'apiUrl' | 'publicUrl' | 'idleMinutes' | 'latency' | 'lateAfterMs'>
  > & {
    readonly insecureCookies?: boolean
    readonly provider?: ProviderSettings | null
  }

/**
 * The dashboard as a plugin of a host that can also answer calls. The plugin's parsers, cookies, headers and error pages do not affect these
 * calls. All changes are made through `administration`.
 */
export const dashboard =
  (
    foundation: Foundation,
    logger: Logger,
    { insecureCookies = false, provider = null, ...options }: DashboardOptions,
  ): FastifyPluginAsync =>
  async (host) => {
    const users = openUserDirectory(foundation)
    const devices = createDevices(foundation.secrets.sealer('dashboard device'))
    const signIns = createSignInEvents(foundation, logger)
    host.addHook('onClose', signIns.close)
    const pixel = createPixelControls({ ...foundation, logger })
    host.addHook('onClose', pixel.close)
    const timer = setInterval(() => void options.health.projectionLags(), lagLookMs).unref()
    host.addHook('onClose', async () => clearInterval(timer))
    const context: Dashboard = {
      users,
      signIns,
      foundation,
      logger,
      requiredFactor: 'optional',
      apiUrl: null,
      publicUrl: null,
      idleMinutes: 60,
      latency: async () => null,
      lateAfterMs: lateAfterDefaultMs,
      ...options,
      pixel,
      provider: provider === null ? null : createIdentityProvider(provider),
      works: createWorks(),
      codeAttempts: createCodeAttempts(foundation),
      halfSignedIn: createHalfSignedIn(foundation.secrets.sealer('dashboard half signed in')),
      devices,
      signIn: createSignIn(foundation, users, devices),
    }
    const away = createOutage({ logger, what: 'dashboard: a page', level: 'error' })
    await host.register(helmet, securityHeaders)
    host.setErrorHandler((error: FastifyError, request, reply) => {
      const fault = faultShown(error)
      if (fault.status === 503) {
        reply.header('retry-after', Math.max(awaySeconds, retryAfterSeconds(foundation.gates)))
        // Logged once per outage, because all pages fail for the same reason.
        away.failed(error)
      } else if (fault.status >= 500)
        logger.error({ err: error, path: request.routeOptions.url }, 'a page failed')
      return sendPage(reply.code(fault.status), faultPage(fault))
    })
    assetRoute(host)
    // Browsers get a page. Other clients get the default answer of the host.
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
    // A page of another release may have requested the asset, so browsers must not cache it under that URL.
    const kept = request.params.version === assetVersion
    reply.header('cache-control', kept ? 'public, max-age=31536000, immutable' : 'no-cache')
    return sendFile(request, reply, asset)
  })
}

const openPages = async (
  pages: FastifyInstance,
  context: Dashboard,
  insecureCookies: boolean,
): Promise<void> => {
  const { pool, secrets } = context.foundation
  // Pages accept only forms, but the host's parser accepts any body as text.
  pages.removeAllContentTypeParsers()
  await pages.register(formbody)
  await pages.register(cookie)
  nameCookies(pages, {
    names: [sessionCookie, formCookie, deviceCookie, halfCookie, providerCookie, timesCookie],
    insecure: insecureCookies,
  })
  await pages.register(session, {
    // Every process derives the same secret. It is not in the database.
    secret: secrets.cookieSecret('dashboard session cookie'),
    store: sessionStore(pool, context.idleMinutes),
    cookieName: sessionCookie,
    cookie: { path: '/', httpOnly: true, sameSite: 'lax', secure: 'auto', maxAge: sessionLifetimeMs },
    saveUninitialized: false,
    rolling: false,
  })
  await pages.register(csrfProtection, {
    // Stored in a cookie, because a token in the session would create a session for every visit to the sign-in page.
    sessionPlugin: '@fastify/cookie',
    cookieKey: formCookie,
    cookieOpts: { path: '/', httpOnly: true, sameSite: 'strict', secure: 'auto' },
    // Forms on pages that other processes served are accepted, too.
    csrfOpts: { hmacKey: secrets.requestHmac('dashboard form token').toString('base64url'), userInfo: true },
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
  // Sibling hosts may not support HTTPS.
  strictTransportSecurity: { maxAge: 31_536_000, includeSubDomains: false },
} as const
