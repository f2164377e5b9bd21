import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import type { LoggedFactor } from '../administration/users/operators.ts'
import {
  removeSecondFactor,
  renewRecoveryCodes,
  setSecondFactor,
} from '../administration/users/second-factors.ts'
import { freshTotpSecret, totpAddress } from '../administration/users/totp.ts'
import { recoveryCodesCount } from '../events/second-factors.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { checkCode, codeRefusal } from './entering.ts'
import { type Form, formOf } from './form.ts'
import { checkPresentPassword } from './own-routes.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from './page.ts'
import type { FormFault } from './pages/layout.ts'
import { factorPage, recoveryCodesPage, setUpPage } from './pages/second-factor.ts'
import { factorIsRequired } from './required-factor.ts'
import { endOtherSessions } from './session.ts'

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
