import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { lastSignIns } from '../../projections/audit.ts'
import { InputFault, labelOf } from '../administration/input.ts'
import { provedOperator } from '../administration/operator.ts'
import { roles } from '../administration/roles.ts'
import {
  invitationLink,
  inviteUser,
  listInvitations,
  withdrawInvitation,
} from '../administration/users/invitations.ts'
import { changePassword, changeRole, listUsers, setDisabled } from '../administration/users/user-changes.ts'
import { userNameMax } from '../administration/users/users.ts'
import { organizationId } from '../events/primitives.ts'
import { type UserRole, userRole } from '../events/users.ts'
import { type Form, formOf } from './form.ts'
import { attemptOnce, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { invitedPage, invitePage } from './pages/invite.ts'
import type { FormFault } from './pages/layout.ts'
import {
  passwordShownPage,
  type ShownUser,
  type UserAct,
  userActPage,
  userHref,
  userPage,
  usersPage,
} from './pages/users.ts'
import { namesOf, rowsOf } from './queries.ts'

/** The users and their rights. Every change is one of `administration`, with the person who made it. */

type UserParams = { Params: { user: string } }

const usersMax = 100
const nameMax = 64

const roleOf = (form: Form): UserRole => {
  const role = userRole.safeParse(form.text('role'))
  if (!role.success) throw new InputFault('role', `there are ${roles.join(', ')}`)
  return role.data
}

const orgOf = (form: Form): string | null => {
  const text = form.text('org').trim()
  if (text === '') return null
  if (!organizationId.safeParse(text).success)
    throw new InputFault('org', 'it is not the id of an organization')
  return text
}

const withSignIns = async (
  { foundation: { pool } }: Dashboard,
  users: Awaited<ReturnType<typeof listUsers>>,
): Promise<ShownUser[]> => {
  const last = await rowsOf(pool, lastSignIns(users.map(({ name }) => name)))
  const at = new Map(last.map(({ name, at }) => [name, at]))
  return users.map((user) => ({ ...user, lastSignInAt: at.get(user.name) ?? null }))
}

/** Throws `PageMissing`. */
const userAt = async (context: Dashboard, { params }: FastifyRequest<UserParams>): Promise<ShownUser> => {
  const found = (await listUsers(context.foundation)).filter(({ name }) => name === params.user)
  const [user] = await withSignIns(context, found)
  if (user === undefined) throw new PageMissing()
  return user
}

export const userRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  const pageOf = async (user: ShownUser, view: Omit<Parameters<typeof userPage>[0], 'user' | 'names'>) =>
    userPage({ ...view, user, names: await namesOf(foundation.pool, [user.organizationId ?? []].flat()) })

  pages.get('/users', async (request, reply) => {
    const after = formOf(request.query).text('after').slice(0, userNameMax)
    const [all, invitations] = await Promise.all([listUsers(foundation), listInvitations(foundation)])
    const begin = after === '' ? 0 : all.findIndex(({ name }) => name === after) + 1
    const shown = all.slice(begin, begin + usersMax)
    const invited = begin === 0 ? invitations : []
    const page = usersPage({
      viewer: viewerOf(request, reply),
      users: await withSignIns(context, shown),
      invitations: invited,
      names: await namesOf(
        foundation.pool,
        [...shown, ...invited].flatMap(({ organizationId }) => organizationId ?? []),
      ),
      further: begin > 0,
      next: all.length > begin + shown.length ? (shown.at(-1)?.name ?? null) : null,
    })
    return sendPage(reply, page)
  })

  pages.get<UserParams>('/users/:user', async (request, reply) => {
    const user = await userAt(context, request)
    const typed = { role: user.role, org: user.organizationId ?? '' }
    return sendPage(reply, await pageOf(user, { viewer: viewerOf(request, reply), fault: null, typed }))
  })

  pages.post<UserParams>('/users/:user/role', async (request, reply) => {
    const { name } = await userAt(context, request)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      changeRole(foundation, {
        name,
        role: roleOf(form),
        organizationId: orgOf(form),
        ...provedOperator(viewer.user),
      }),
    )
    if (!('fault' in outcome)) return reply.redirect(userHref(name), 303)
    const form = formOf(request.body)
    const typed = { role: form.text('role'), org: form.text('org') }
    const user = await userAt(context, request)
    return sendPage(reply.code(422), await pageOf(user, { viewer, fault: outcome.fault, typed }))
  })

  actRoutes(pages, context)
  inviteRoutes(pages, context)
}

/** Each has a GET that shows the preview and a POST that makes the change. */
const actRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  const refused = async (
    request: FastifyRequest<UserParams>,
    reply: FastifyReply,
    { act, fault }: { act: UserAct; fault: FormFault | null },
  ) => {
    const user = await userAt(context, request)
    const reason = formOf(request.body).text('reason')
    const viewer = viewerOf(request, reply)
    return sendPage(reply.code(fault === null ? 200 : 422), userActPage({ viewer, user, fault, act, reason }))
  }

  for (const act of ['password', 'disable', 'enable'] as const)
    pages.get<UserParams>(`/users/:user/${act}`, (request, reply) =>
      refused(request, reply, { act, fault: null }),
    )

  pages.post<UserParams>('/users/:user/password', async (request, reply) => {
    const { name } = await userAt(context, request)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, () =>
      changePassword(foundation, { name, ...provedOperator(viewer.user) }),
    )
    if ('fault' in outcome) return refused(request, reply, { act: 'password', fault: outcome.fault })
    return sendPage(reply, passwordShownPage({ viewer, user: name, password: outcome.done.password }))
  })

  for (const act of ['disable', 'enable'] as const)
    pages.post<UserParams>(`/users/:user/${act}`, async (request, reply) => {
      const { name } = await userAt(context, request)
      const actor = provedOperator(viewerOf(request, reply).user)
      const outcome = await attemptOnce(context, request, async (form) => {
        const reason = labelOf('reason', form.text('reason'))
        await setDisabled(foundation, { name, reason, disabled: act === 'disable', ...actor })
      })
      return 'fault' in outcome
        ? refused(request, reply, { act, fault: outcome.fault })
        : reply.redirect(userHref(name), 303)
    })
}

const inviteRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, publicUrl } = context

  pages.get('/invite', (request, reply) => {
    const typed = formOf(request.query).text
    return sendPage(reply, invitePage({ viewer: viewerOf(request, reply), typed, fault: null }))
  })

  pages.post('/invite', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) => {
      const name = labelOf('name', form.text('name'), nameMax)
      const invited = { name, role: roleOf(form), organizationId: orgOf(form) }
      return { name, ...(await inviteUser(foundation, { ...invited, ...provedOperator(viewer.user) })) }
    })
    if ('fault' in outcome) {
      const typed = formOf(request.body).text
      return sendPage(reply.code(422), invitePage({ viewer, typed, fault: outcome.fault }))
    }
    const { secret, ...shown } = outcome.done
    const link = invitationLink(publicUrl ?? `${request.protocol}://${request.host}`, secret)
    return sendPage(reply, invitedPage({ viewer, ...shown, link }))
  })

  pages.post('/invite/withdraw', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      withdrawInvitation(foundation, { name: form.text('name'), ...provedOperator(viewer.user) }),
    )
    if (!('fault' in outcome)) return reply.redirect('/users', 303)
    const typed = formOf(request.body).text
    return sendPage(reply.code(422), invitePage({ viewer, typed, fault: outcome.fault }))
  })
}
