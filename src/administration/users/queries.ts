import { z } from 'zod'
import { lastSignIns } from '../../../projections/audit.ts'
import { rowsOf } from '../../concurrency/query.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { query, type Row } from '../declare.ts'
import { user } from '../fields.ts'
import { listInvitations } from './invitations.ts'
import { operatorTokens } from './operator-tokens.ts'
import { listUsers } from './user-changes.ts'

const list = query({
  name: 'user list',
  action: 'users.read',
  summary: 'list users and open invitations',
  input: z.object({ name: user().optional() }),
  columns: [
    { name: 'user', label: 'User', kind: 'name' },
    { name: 'role', label: 'Role' },
    { name: 'organization_id', label: 'Organization', kind: 'organization' },
    { name: 'state', label: 'Status' },
    { name: 'last_sign_in_at', label: 'Last sign-in (UTC)', kind: 'instant' },
    { name: 'second_factor', label: 'Second factor' },
    { name: 'sessions', label: 'Open sessions', kind: 'number' },
    { name: 'tokens', label: 'Tokens', kind: 'number' },
    { name: 'reason', label: 'Reason' },
  ],
  next: [
    { name: 'user invite', label: 'Invite someone' },
    { name: 'user create', label: 'Create a user' },
    { name: 'user tokens', label: 'All tokens' },
  ],
  nextOfRow: [
    {
      name: 'user role',
      label: 'Change role',
      given: ({ user: name, role, organization_id: organization, state }) =>
        state === 'enabled' ? { name, role, ...(organization !== null && { organization }) } : null,
    },
    { name: 'user password', label: 'New password', given: (row) => nameIf(row, 'enabled') },
    {
      name: 'user second-factor',
      label: 'Remove second factor',
      given: ({ user: name, second_factor }) => (second_factor === true ? { name, remove: true } : null),
    },
    {
      name: 'user token',
      label: 'New token',
      given: ({ user: name, role, state }) => (state === 'enabled' && role !== 'partner' ? { name } : null),
    },
    {
      name: 'user tokens',
      label: 'Tokens',
      given: ({ user: name, tokens }) => (tokens === 0 ? null : { name }),
    },
    { name: 'audit list', label: 'Audit', given: ({ user: about }) => ({ about }) },
    { name: 'user disable', label: 'Disable', given: (row) => nameIf(row, 'enabled') },
    { name: 'user enable', label: 'Enable', given: (row) => nameIf(row, 'disabled') },
    {
      name: 'user invite',
      label: 'Invite again',
      given: ({ user: name, role, organization_id: organization, state }) =>
        isInvited(state) ? { name, role, ...(organization !== null && { organization }) } : null,
    },
    {
      name: 'user invite',
      label: 'Withdraw',
      given: ({ user: name, state }) => (isInvited(state) ? { name, withdraw: true } : null),
    },
  ],
  run: async ({ foundation }, { name }) => ({
    json: [...(await usersOf(foundation)), ...(await listInvitations(foundation)).map(invited)].filter(
      (one) => name === undefined || one.user === name,
    ),
  }),
})

const nameIf = ({ user: name, state }: Row, wanted: 'enabled' | 'disabled') =>
  state === wanted ? { name } : null

const isInvited = (state: unknown): boolean => String(state).startsWith('invited')

const usersOf = async (foundation: Foundation) => {
  const users = await listUsers(foundation)
  const rows = await rowsOf(foundation.pool, lastSignIns(users.map(({ name }) => name)))
  const last = new Map(rows.map(({ name, at }) => [name, at]))
  return users.map(
    ({ name, role, organizationId, standing, createdAt, logged, secondFactor, sessions, tokens }) => ({
      user: name,
      role,
      organization_id: organizationId,
      state: standing.kind === 'acts' ? 'enabled' : standing.why,
      created_at: createdAt,
      created_by: logged?.createdBy ?? null,
      last_sign_in_at: last.get(name) ?? null,
      second_factor: secondFactor !== null,
      sessions,
      tokens,
      disabled_by: logged?.disabled?.by ?? null,
      reason: logged?.disabled?.reason ?? null,
    }),
  )
}

const invited = (one: Awaited<ReturnType<typeof listInvitations>>[number]) => ({
  user: one.user,
  role: one.role,
  organization_id: one.organizationId,
  state: one.expired ? 'invited, and the link has expired' : 'invited',
  created_at: one.invitedAt,
  created_by: one.invitedBy,
  last_sign_in_at: null,
  second_factor: false,
  sessions: 0,
  tokens: 0,
  disabled_by: null,
  reason: null,
})

const tokens = query({
  name: 'user tokens',
  action: 'users.read',
  summary: 'list tokens for the command line and the admin API',
  input: z.object({ name: user().optional() }),
  columns: [
    { name: 'user', label: 'User', kind: 'name' },
    { name: 'token_id', label: 'Token', kind: 'id' },
    { name: 'issued_at', label: 'Created (UTC)', kind: 'instant' },
    { name: 'issued_by', label: 'Created by' },
    { name: 'revoked_at', label: 'Revoked (UTC)', kind: 'instant' },
    { name: 'revoked_by', label: 'Revoked by' },
  ],
  nextOfRow: [
    {
      name: 'user token',
      label: 'Revoke',
      given: ({ user: name, token_id: id, revoked_at }) =>
        revoked_at === null ? { name, id, revoke: true } : null,
    },
  ],
  run: async ({ foundation }, { name }) => ({
    json: (await operatorTokens(foundation))
      .filter((one) => name === undefined || one.user === name)
      .map((one) => ({
        user: one.user,
        token_id: one.tokenId,
        issued_at: one.issuedAt,
        issued_by: one.issuedBy,
        revoked_at: one.revoked?.at ?? null,
        revoked_by: one.revoked?.by ?? null,
      })),
  }),
})

export const declarations = [list, tokens]
