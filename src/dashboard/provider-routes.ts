import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { createAttempts } from '../administration/attempts.ts'
import { passwordMark } from '../administration/users/users.ts'
import { addressBlock, callerAddress } from '../guard/caller-address.ts'
import type { Sealer } from '../guard/secrets/secrets.ts'
import { newDevice, sealedDeviceOf } from './devices.ts'
import { enter } from './entering.ts'
import { formOf } from './form.ts'
import { type Errand, type IdentityProvider, ProviderAway } from './identity-provider.ts'
import { nextOf } from './next.ts'
import type { Dashboard } from './page.ts'
import { sendSignIn } from './pages/sign-in.ts'
import { providerCookie } from './session.ts'

/**
 * Sign-in with an identity provider. After every failure, the sign-in page is shown, where a password still works. The page does not reveal
 * whether an account is unknown or disabled.
 */

const callback = '/login/provider/callback'
const attemptsPerMinute = 20
/** Enough time to type a password and a code at the provider. */
const errandMaxMs = 10 * 60 * 1_000
/** `lax`, because the person returns from another site. */
const errandCookieOptions = {
  path: '/',
  httpOnly: true,
  sameSite: 'lax',
  secure: 'auto',
  maxAge: errandMaxMs / 1_000,
} as const

const keptErrand = z.strictObject({
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  redirectUri: z.string(),
  next: z.string(),
  /** The device's cookie from an earlier sign-in. The browser does not send this cookie when the person returns from the provider. */
  device: z.string().nullable(),
  atMs: z.number(),
})
type KeptErrand = z.infer<typeof keptErrand> & Errand

const messages = {
  away: 'The identity provider cannot be reached. Sign in with your password, or try again in a moment.',
  late: 'The sign-in took too long, or was started in another browser. Start again.',
  refused: 'The provider did not confirm your identity. Start again, or sign in with your password.',
  unknown: 'Your account at the provider has no access here. Ask an admin for an invitation.',
  limited: 'Too many attempts. Try again in a minute.',
} as const

const statuses = { away: 503, late: 400, refused: 401, unknown: 401, limited: 429 } as const

type Parts = { readonly context: Dashboard; readonly provider: IdentityProvider; readonly sealer: Sealer }
type Asked = { readonly request: FastifyRequest; readonly reply: FastifyReply; readonly next: string }

const ended = (
  { context }: Parts,
  { request, reply, next }: Asked,
  why: keyof typeof messages,
): FastifyReply => {
  const fault = { field: null, message: messages[why] }
  return sendSignIn(context, request, reply.code(statuses[why]), { next, fault })
}

/** Shows the sign-in page if the provider is unavailable. Throws any other error. */
const endedAway = (parts: Parts, asked: Asked, error: unknown): FastifyReply => {
  if (!(error instanceof ProviderAway)) throw error
  parts.context.logger.warn({ err: error }, 'dashboard: the identity provider is unavailable')
  return ended(parts, asked, 'away')
}

export const providerRoutes = (
  pages: FastifyInstance,
  context: Dashboard,
  provider: IdentityProvider,
): void => {
  const parts = { context, provider, sealer: context.foundation.secrets.sealer('dashboard provider errand') }
  const addresses = createAttempts(context.foundation, { what: 'provider', perMinute: attemptsPerMinute })
  const isLimited = async (request: FastifyRequest): Promise<boolean> =>
    (await addresses(addressBlock(callerAddress(request)))) !== null

  pages.get('/login/provider', async (request, reply) => {
    const asked = { request, reply, next: nextOf(formOf(request.query).text('next')) }
    return (await isLimited(request)) ? ended(parts, asked, 'limited') : goThere(parts, asked)
  })

  pages.get(callback, async (request, reply) => {
    const errand = errandOf(parts, request)
    // The cookie is deleted immediately, so that a reload cannot use it again.
    reply.clearCookie(providerCookie, { path: '/' })
    const asked = { request, reply, next: nextOf(errand?.next ?? '') }
    if (await isLimited(request)) return ended(parts, asked, 'limited')
    return errand === null ? ended(parts, asked, 'late') : comeBack(parts, asked, errand)
  })
}

const goThere = async (parts: Parts, asked: Asked): Promise<FastifyReply> => {
  const { request, reply, next } = asked
  const base = parts.context.publicUrl ?? `${request.protocol}://${request.host}`
  try {
    const { url, errand } = await parts.provider.begin(new URL(callback, base).href)
    const device = sealedDeviceOf(request) ?? null
    const kept = { ...errand, next, device, atMs: Date.now() } satisfies KeptErrand
    reply.setCookie(providerCookie, parts.sealer.seal(JSON.stringify(kept), 'errand'), errandCookieOptions)
    return reply.header('cache-control', 'no-store').redirect(url, 303)
  } catch (error) {
    return endedAway(parts, asked, error)
  }
}

/** The sign-in that was begun in this browser; null if there is none, or it is too old. */
const errandOf = ({ sealer }: Parts, request: FastifyRequest): KeptErrand | null => {
  const sealed = request.cookies[providerCookie]
  const text = sealed === undefined ? null : sealer.open(sealed, 'errand')
  // The cookie may be from another release. The person then has to start over.
  const errand = text === null ? undefined : keptErrand.safeParse(JSON.parse(text)).data
  return errand !== undefined && Math.abs(Date.now() - errand.atMs) < errandMaxMs ? errand : null
}

const comeBack = async (parts: Parts, asked: Asked, errand: KeptErrand): Promise<FastifyReply> => {
  const { logger, signIns, users, devices, foundation } = parts.context
  const { request, reply, next } = asked
  const address = callerAddress(request)
  const at = request.url.indexOf('?')
  try {
    const found = await parts.provider.finish(at === -1 ? '' : request.url.slice(at), errand)
    if (found.kind === 'refused') {
      logger.warn({ address, reason: found.says }, 'dashboard: sign-in with the identity provider refused')
      signIns.refused({ user: null, address, reason: 'wrong', way })
      return ended(parts, asked, 'refused')
    }
    const standing = await users.standing(found.name)
    if (standing.kind === 'refused') {
      const user = standing.why === 'missing' ? null : found.name
      signIns.refused({ user, address, reason: standing.why === 'disabled' ? 'disabled' : 'wrong', way })
      return ended(parts, asked, 'unknown')
    }
    const mark = await passwordMark(foundation.pool, standing.user)
    if (mark === null) return ended(parts, asked, 'unknown')
    const known = devices.open(errand.device, standing.user)
    return await enter(parts.context, request, reply, {
      user: standing.user,
      mark,
      next,
      way,
      device: known ?? newDevice(),
      knownDevice: known !== null,
    })
  } catch (error) {
    return endedAway(parts, asked, error)
  }
}

const way = 'identity_provider'
