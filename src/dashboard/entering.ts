import type { FastifyReply, FastifyRequest } from 'fastify'
import { provedOperator } from '../administration/operator.ts'
import { accountNotices } from '../administration/users/account-notices.ts'
import { checkSecondFactor } from '../administration/users/second-factors.ts'
import { passwordMark } from '../administration/users/users.ts'
import type { SecondFactorRefusal } from '../events/second-factors.ts'
import type { SignInWay } from '../events/sign-ins.ts'
import { callerAddress } from '../guard/caller-address.ts'
import { type Device, sealedDeviceOf } from './devices.ts'
import { withNext } from './given-password.ts'
import type { Dashboard } from './page.ts'
import { SignInOvertaken } from './session.ts'

/** The common part of all sign-ins. After the password or the identity provider, it asks for the second factor and begins the session. */

type Entering = {
  readonly user: string
  /** Identifies the password that was valid at the first step of the sign-in. */
  readonly mark: string
  readonly knownDevice: boolean
  readonly device: Device
  readonly next: string
  readonly way: SignInWay
}

/** Continues a sign-in after its first step. Rejects if the event log is unavailable. */
export const enter = async (
  context: Dashboard,
  request: FastifyRequest,
  reply: FastifyReply,
  entering: Entering,
): Promise<FastifyReply> => {
  if ((await context.users.secondFactor(entering.user)) === null)
    return beginSession(context, request, reply, { ...entering, factorId: null })
  context.halfSignedIn.keep(reply, { ...entering, atMs: Date.now() })
  return reply.redirect('/login/code', 303)
}

/** The sign-in that waits for a code; null if it has expired, or the password or the user has changed since. */
export const halfOf = async (
  { halfSignedIn, users, foundation: { pool } }: Dashboard,
  request: FastifyRequest,
): Promise<Entering | null> => {
  const half = halfSignedIn.of(request, Date.now())
  if (half === null) return null
  const standing = await users.standing(half.user)
  return standing.kind === 'acts' && (await passwordMark(pool, half.user)) === half.mark ? half : null
}

type CodeOutcome =
  | { readonly kind: 'right'; readonly factorId: string | null }
  | { readonly kind: SecondFactorRefusal; readonly retryAfterSeconds: number | null }

/** Checks a code within the limits on attempts, and records refusals. If the factor was removed in the meantime, any code is accepted. */
export const checkCode = async (
  { users, devices, codeAttempts, signIns, foundation, logger }: Dashboard,
  request: FastifyRequest,
  { user, typed }: { user: string; typed: string },
): Promise<CodeOutcome> => {
  const address = callerAddress(request)
  const refused = (kind: SecondFactorRefusal, retryAfterSeconds: number | null = null): CodeOutcome => {
    signIns.codeRefused({ user, address, reason: kind })
    logger.warn({ user, address, reason: kind }, 'dashboard: second factor refused')
    return { kind, retryAfterSeconds }
  }
  const factor = await users.secondFactor(user)
  if (factor === null) return { kind: 'right', factorId: null }
  const device = devices.open(sealedDeviceOf(request), user)
  const provedOn = device?.factorId === factor.factorId ? device : null
  const waitSeconds = await codeAttempts({ user, address, provedOn })
  if (waitSeconds !== null) return refused('limited', waitSeconds)
  const asked = { user, factor, typed, provedBefore: provedOn !== null, ...provedOperator(user) }
  const verdict = await checkSecondFactor(foundation, asked, Date.now())
  return verdict.kind === 'right' ? { kind: 'right', factorId: factor.factorId } : refused(verdict.kind)
}

/** The message for a refused code. */
export const codeRefusal = ({ kind, retryAfterSeconds }: Exclude<CodeOutcome, { kind: 'right' }>): string => {
  switch (kind) {
    case 'wrong':
      return 'The code is wrong.'
    case 'used':
      return 'This code has already been used. Wait for the next one, or use another recovery code.'
    case 'limited':
      return retryAfterSeconds === null
        ? 'Too many wrong codes today. You can still use a recovery code.'
        : `Too many attempts. Try again in ${retryAfterSeconds} seconds.`
    case 'broken':
      return 'Your second factor cannot be checked, because its data is missing or unreadable. Ask an administrator to remove it with "user second-factor NAME --remove --reason TEXT". Then sign in with your password, and set up a second factor again.'
  }
}

/** Begins the session. If the password, the user or the second factor has changed since the first step, the person has to start over. */
export const beginSession = async (
  context: Dashboard,
  request: FastifyRequest,
  reply: FastifyReply,
  { user, mark, factorId, knownDevice, device, next, way }: Entering & { readonly factorId: string | null },
): Promise<FastifyReply> => {
  const { signIns, users, devices, logger } = context
  const address = callerAddress(request)
  await signIns.signedIn({ user, address, knownDevice, way })
  await request.session.regenerate()
  Object.assign(request.session, { user, mark, byProvider: way === 'identity_provider' })
  const begun = await request.session.save().then(
    () => true,
    (error: unknown) => {
      if (error instanceof SignInOvertaken) return false
      throw error
    },
  )
  // If a second factor is set up at the same time, either it ends this session, or this check finds it.
  if (!begun || ((await users.secondFactor(user))?.factorId ?? null) !== factorId) {
    await request.session.destroy()
    return startOver(reply, next)
  }
  devices.keep(reply, user, { id: device.id, factorId })
  logger.info({ user, address, way }, 'dashboard: signed in')
  const to = await noticesFirst(context, { user, sinceMs: device.seenAtMs, next })
  return reply.redirect(to, 303)
}

/** Shows the user's own page first if the security settings of the account have changed since the last sign-in on this device. */
const noticesFirst = async (
  { foundation, logger }: Dashboard,
  { user, sinceMs, next }: { user: string; sinceMs: number | null; next: string },
): Promise<string> => {
  if (sinceMs === null) return next
  try {
    const notices = await accountNotices(foundation, { user, sinceMs, max: 1 })
    if (notices.length === 0) return next
    return `/me?${new URLSearchParams({ since: String(sinceMs), ...(next === '/' ? {} : { next }) }).toString()}`
  } catch (error) {
    // The user's own page always lists the changes.
    logger.error({ err: error, user }, 'dashboard: changes to the account could not be looked up')
    return next
  }
}

/** Redirects to the sign-in page, and from there to the requested page. */
export const startOver = (reply: FastifyReply, next: string): FastifyReply =>
  reply.redirect(withNext('/login', next), 303)
