import { mayDo, roles } from '../../administration/roles.ts'
import type { listInvitations } from '../../administration/users/invitations.ts'
import type { listUsers } from '../../administration/users/user-changes.ts'
import { count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  table,
  type Viewer,
} from './layout.ts'
import { type Names, organizationLink } from './organization-link.ts'

/** The users, the invitations, and the forms that change them. */

export type ShownUser = Awaited<ReturnType<typeof listUsers>>[number] & {
  /** Null: never, or before sign-ins were events. */
  readonly lastSignInAt: Date | null
}
type ShownInvitation = Awaited<ReturnType<typeof listInvitations>>[number]

export const userHref = (name: string): string => `/users/${encodeURIComponent(name)}`

export const usersPage = ({
  viewer,
  users,
  invitations,
  names,
  further,
  next,
}: {
  readonly viewer: Viewer
  readonly users: readonly ShownUser[]
  readonly invitations: readonly ShownInvitation[]
  readonly names: Names
  /** The page is not the first; the name after which the next page begins. */
  readonly further: boolean
  readonly next: string | null
}): Html =>
  layout({
    title: 'Users',
    at: '/users',
    viewer,
    main: html`<h1>Users</h1>
${mayDo(viewer.role, 'users.change') && html`<p class="actions"><a class="button" href="/invite">Invite someone</a></p>`}
${users.length === 0 ? html`<p class="empty">There are no more users.</p>` : usersTable(users, names)}
<nav class="pager" aria-label="Pages of users">
${further && html`<a href="/users">First page</a>`}
${next !== null && html`<a href="/users?after=${encodeURIComponent(next)}">Next page</a>`}
</nav>
${invitations.length > 0 && invitationsSection(viewer, invitations, names)}`,
  })

const usersTable = (users: readonly ShownUser[], names: Names): Html =>
  table({
    caption: 'Users with role, state and last sign-in',
    rows: users,
    columns: [
      { head: 'User', kind: 'name', cell: ({ name }) => html`<a href="${userHref(name)}">${name}</a>` },
      { head: 'Role', cell: ({ role }) => role },
      { head: 'Organization', cell: ({ organizationId }) => reachOf(organizationId, names) },
      { head: 'State', cell: stateOf },
      { head: 'Last sign-in (UTC)', cell: ({ lastSignInAt }) => lastOf(lastSignInAt) },
      { head: 'Open sessions', kind: 'number', cell: ({ sessions }) => count(sessions) },
      { head: 'Tokens', kind: 'number', cell: ({ tokens }) => count(tokens) },
    ],
  })

const reachOf = (organizationId: string | null, names: Names): Renderable =>
  organizationId === null ? 'all' : organizationLink(organizationId, names)

const lastOf = (at: Date | null): Renderable => (at === null ? 'not known' : instant(at))

const stateOf = ({ standing }: ShownUser): Html =>
  standing.kind === 'acts'
    ? html`<span class="mark good">enabled</span>`
    : html`<span class="mark bad">${standing.why === 'disabled' ? 'disabled' : 'refused'}</span>`

const invitationsSection = (viewer: Viewer, invitations: readonly ShownInvitation[], names: Names): Html => {
  const changes = mayDo(viewer.role, 'users.change')
  const again = ({ user, role, organizationId }: ShownInvitation): Html => {
    const query = new URLSearchParams({ name: user, role, org: organizationId ?? '' })
    return html`<a href="/invite?${query.toString()}">Invite again</a>`
  }
  return html`<section aria-labelledby="invited">
<h2 id="invited">Invited</h2>
${table({
  caption: 'Invitations that were not accepted',
  rows: invitations,
  columns: [
    { head: 'Name', kind: 'name', cell: ({ user }) => user },
    { head: 'Role', cell: ({ role }) => role },
    { head: 'Organization', cell: ({ organizationId }) => reachOf(organizationId, names) },
    { head: 'By', cell: ({ invitedBy }) => invitedBy },
    {
      head: 'Link works until (UTC)',
      cell: ({ expiresAt, expired }) =>
        html`${instant(new Date(expiresAt))}${expired && html` <span class="mark warn">expired</span>`}`,
    },
    ...(changes
      ? [
          {
            head: 'Change',
            cell: (one: ShownInvitation) => html`${again(one)}
<form method="post" action="/invite/withdraw">${formFields(viewer)}<input type="hidden" name="name" value="${one.user}">
<button class="quiet" type="submit">Withdraw<span class="unseen"> the invitation of ${one.user}</span></button></form>`,
          },
        ]
      : []),
  ],
})}
</section>`
}

type UserView = {
  readonly viewer: Viewer
  readonly user: ShownUser
  readonly fault: FormFault | null
}

export const usersFrame = (viewer: Viewer, title: string, main: Html): Html =>
  layout({
    title,
    viewer,
    at: '/users',
    main: html`<p class="eyebrow"><a href="/users">Users</a></p>
<h1>${title}</h1>
${main}`,
  })

/** `typed`: the role form as it was sent. */
export const userPage = ({
  typed,
  ...view
}: UserView & {
  readonly names: Names
  readonly typed: { readonly role: string; readonly org: string }
}): Html => {
  const { viewer, user, names, fault } = view
  const { standing, logged } = user
  return usersFrame(
    viewer,
    user.name,
    html`${figures([
      ['Role', user.role],
      ['Organization', reachOf(user.organizationId, names)],
      ['State', stateOf(user)],
      ['Open sessions', count(user.sessions)],
      ['Tokens', count(user.tokens)],
    ])}
<p class="note">Made at ${utc(user.createdAt)}${logged !== undefined && ` by ${logged.createdBy}`}. Last sign-in: ${user.lastSignInAt === null ? 'not known' : utc(user.lastSignInAt)}.</p>
${standing.kind === 'refused' && html`<p class="notice">${standing.says}${logged?.disabled != null && html`: ${logged.disabled.reason}`}.</p>`}
<p><a href="/audit?about=${encodeURIComponent(user.name)}">What was done to ${user.name}</a> · <a href="/audit?actor=${encodeURIComponent(user.name)}">what ${user.name} did</a></p>
${faultNotice(fault)}
${mayDo(viewer.role, 'users.change') && changes(view, typed)}`,
  )
}

const changes = ({ viewer, user, fault }: UserView, typed: { role: string; org: string }): Html => {
  const href = userHref(user.name)
  return html`<section class="narrow" aria-labelledby="role-of">
<h2 id="role-of">Role</h2>
<p class="note">${user.name} has it from the next page on. Who is made anything but admin can change no user any more, and the links of open invitations they made open nothing.</p>
<form class="fields" method="post" action="${href}/role">${formFields(viewer)}
${roleFields(typed, fault)}
<p class="actions"><button type="submit">Change the role</button></p>
</form>
</section>
<section class="narrow" aria-labelledby="more">
<h2 id="more">More</h2>
<p class="actions">${
    user.standing.kind === 'acts'
      ? html`<a class="button quiet" href="${href}/password">New password</a> <a class="button quiet" href="${href}/disable">Disable</a>`
      : html`<a class="button quiet" href="${href}/enable">Enable</a>`
  }</p>
</section>`
}

export const roleFields = (
  typed: { readonly role: string; readonly org: string },
  fault: FormFault | null,
): Html => html`<p><label for="role">Role</label>
<select id="role" name="role"${described('role', fault)}>${roles.map(
  (role) => html`<option value="${role}"${role === typed.role && html` selected`}>${role}</option>`,
)}</select></p>
<p><label for="org">Organization</label>
<input id="org" name="org" value="${typed.org}" maxlength="64" autocomplete="off" spellcheck="false"${described('org', fault, 'org-hint')}>
<small id="org-hint">Of a partner only: its id, such as org_01J….</small></p>`

const acts = {
  password: {
    title: 'A new password',
    says: 'The password of now ends, and every open session with it. Tokens for the command line go on. The new password is shown to you once.',
    button: 'Make a new password',
  },
  disable: {
    title: 'Disable a user',
    says: 'Every session ends at once, in every process, and every token for good. Links of open invitations that this person made open nothing any more.',
    button: 'Disable',
  },
  enable: {
    title: 'Enable a user',
    says: 'The person can sign in again, with the password and the role of before. Tokens of before stay revoked.',
    button: 'Enable',
  },
} as const

export type UserAct = keyof typeof acts

/** The preview of a change. */
export const userActPage = ({
  viewer,
  user,
  fault,
  act,
  reason,
}: UserView & { readonly act: UserAct; readonly reason: string }): Html =>
  usersFrame(
    viewer,
    acts[act].title,
    html`<div class="narrow">${faultNotice(fault)}
<p><strong>${user.name}</strong>, ${user.role}: ${acts[act].says}</p>
<form class="fields" method="post" action="${userHref(user.name)}/${act}">${formFields(viewer)}
${
  act !== 'password' &&
  html`<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${reason}" required maxlength="200" autocomplete="off"${described('reason', fault, 'reason-hint')}>
<small id="reason-hint">Kept in the event log with your user name.</small></p>`
}
<p class="actions"><button class="${act === 'disable' ? 'danger' : ''}" type="submit">${acts[act].button}</button> <a href="${userHref(user.name)}">Cancel</a></p>
</form></div>`,
  )

/** The only page that shows it. */
export const passwordShownPage = ({
  viewer,
  user,
  password,
}: {
  readonly viewer: Viewer
  readonly user: string
  readonly password: string
}): Html =>
  usersFrame(
    viewer,
    'New password',
    html`<div class="narrow"><p class="notice">Copy the password of ${user} now. It is not shown again.</p>
<p class="label" id="shown-label">Password</p>
<p class="secret" tabindex="0" aria-labelledby="shown-label"><code id="shown">${password}</code></p>
<p class="actions"><button type="button" data-copy="shown" aria-live="polite" hidden>Copy the password</button> <a class="button quiet" href="${userHref(user)}">Back to ${user}</a></p></div>`,
  )
