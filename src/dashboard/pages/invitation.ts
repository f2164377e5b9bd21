import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { createAttempts } from '../../administration/attempts.ts'
import { InputFault } from '../../administration/input.ts'
import { checkPassword } from '../../administration/users/chosen-password.ts'
import { acceptInvitation, InvitationEnded, openInvitations } from '../../administration/users/invitations.ts'
import { addressBlock, callerAddress } from '../../guard/caller-address.ts'
import { formOf } from '../form.ts'
import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { attempt, csrfOf, type Dashboard, sendPage } from '../page.ts'
import { guessableNames } from '../queries.ts'
import { sessionCookie } from '../session.ts'
import { faultPage } from './fault.ts'
import { csrfField, type FormFault, faultNotice, layout, newPasswordField } from './layout.ts'

/** The page of an invitation link. Mail scanners can open the link, so only POST creates the user, and only once. */

type LinkParams = { Params: { secret: string } }

/** The limit for one IP address and all links together. It allows a person to mistype a password a few times. */
const attemptsPerMinute = 20

export const invitationRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, logger, signIns } = context
  const find = openInvitations(foundation)
  const addresses = createAttempts(foundation, { what: 'invitation', perMinute: attemptsPerMinute })
  /** Returns the answer for an address that has sent too many requests; null if the request may continue. */
  const limited = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | null> => {
    const waitSeconds = await addresses(addressBlock(callerAddress(request)))
    if (waitSeconds === null) return null
    const advice = `Try again in ${waitSeconds} seconds. Nothing was done, and the link is still valid.`
    reply.code(429).header('retry-after', waitSeconds)
    return sendPage(reply, faultPage({ status: 429, title: 'Too many attempts', advice }))
  }

  pages.get<LinkParams>('/invitations/:secret', async (request, reply) => {
    const sent = await limited(request, reply)
    if (sent !== null) return sent
    const invitation = await find(request.params.secret)
    if (invitation === null) throw new InvitationEnded()
    return sendPage(reply, invitationPage({ ...invitation, csrf: csrfOf(request, reply), fault: null }))
  })

  pages.post<LinkParams>('/invitations/:secret', async (request, reply) => {
    const sent = await limited(request, reply)
    if (sent !== null) return sent
    const { secret } = request.params
    const invitation = await find(secret)
    if (invitation === null) throw new InvitationEnded()
    const outcome = await attempt(async () => {
      const form = formOf(request.body)
      const names = await guessableNames(foundation.pool, invitation)
      const password = await checkPassword('new', form.text('new'), names)
      if (password !== form.text('again')) throw new InputFault('again', 'the two passwords differ')
      return acceptInvitation(foundation, { secret, password })
    })
    if ('fault' in outcome) {
      const csrf = csrfOf(request, reply)
      return sendPage(reply.code(422), invitationPage({ ...invitation, csrf, fault: outcome.fault }))
    }
    logger.info({ user: outcome.done.user }, 'dashboard: an invitation was accepted')
    // Another person may be signed in in this browser. That session ends, and the new user signs in.
    const { user } = request.session
    if (user !== undefined) {
      await request.session.destroy()
      await signIns.signedOut(user)
      reply.clearCookie(sessionCookie, { path: '/' })
    }
    return reply.redirect('/login?invited=yes', 303)
  })
}

/** The page on which an invited person chooses a password. The form is sent to the link itself. */
const invitationPage = ({
  csrf,
  user,
  role,
  expiresAt,
  fault,
}: {
  readonly csrf: string
  readonly user: string
  readonly role: string
  readonly expiresAt: string
  readonly fault: FormFault | null
}): Html =>
  layout({
    title: 'Invitation',
    viewer: null,
    main: html`<div class="narrow">
<h1>Welcome, ${user}</h1>
<p>You are invited with the role ${role}. Choose a password, and then sign in with the name <strong>${user}</strong>. The link works once, until ${utc(new Date(expiresAt))}.</p>
${faultNotice(fault)}
<form class="fields" method="post">
${csrfField(csrf)}
<input type="text" name="username" value="${user}" autocomplete="username" hidden readonly>
${newPasswordField('new', 'Password, at least 15 characters', fault)}
${newPasswordField('again', 'Repeat the password', fault)}
<p class="actions"><button type="submit">Set password</button></p>
</form>
</div>`,
  })
