import { z } from 'zod'
import { creditsText, formatCredits } from '../../billing/money.ts'
import { organizationId } from '../../events/primitives.ts'
import { command, pagedList, pageUpTo } from '../declare.ts'
import { credits, line } from '../fields.ts'
import { InputFault } from '../input.ts'
import { createOrganization, organizationsAfter } from './organizations.ts'

const createOrg = command({
  name: 'org create',
  action: 'organizations.change',
  summary: 'register an organization and open its ledger',
  input: z.object({
    name: line({
      label: 'Name',
      help: 'the name shown to partners and in statements; it cannot be changed later',
    }),
    overdraft_limit: credits(
      {
        label: 'Overdraft limit, credits',
        help: 'the maximum amount by which the balance can fall below zero',
      },
      { zero: true },
    ).prefault('0'),
  }),
  changes: { of: 'access', asks: 'never' },
  plan: async (_, { name, overdraft_limit: limit }) =>
    `Register "${name}", whose balance can go down to ${limit === 0n ? 'zero' : `${creditsText(formatCredits(limit))} below zero`}.`,
  run: async ({ foundation, operator }, { name, overdraft_limit: overdraftLimit }) => {
    const { actor } = operator
    const { organizationId } = await createOrganization(foundation, { name, overdraftLimit, actor })
    const given = { organization: organizationId }
    return {
      json: { organization_id: organizationId, name, overdraft_limit: formatCredits(overdraftLimit) },
      next: [
        { name: 'credits grant', label: 'Grant credits', given },
        { name: 'key issue', label: 'Issue an API key', given },
      ],
    }
  },
})

const listOrgs = pagedList({
  name: 'org list',
  action: 'finance.read',
  summary: 'list organizations with their balances',
  input: z.object({}),
  whole: true,
  columns: [
    { name: 'organization_id', label: 'Organization', kind: 'organization', named: 'name' },
    { name: 'name', label: 'Name' },
    { name: 'balance', label: 'Balance', kind: 'credits' },
    { name: 'charged', label: 'Charged', kind: 'credits' },
    { name: 'live_keys', label: 'Live keys', kind: 'number' },
    { name: 'last_call_at', label: 'Last call (UTC)', kind: 'instant' },
  ],
  empty: 'No organizations yet. Register one to give it credits and API keys',
  next: [{ name: 'org create', label: 'Register an organization' }],
  page: async ({ foundation, caughtUp }, _, { cursor, max }) => {
    if (cursor === null) await caughtUp()
    else if (!organizationId.safeParse(cursor).success)
      throw new InputFault('cursor', `"${cursor}" is not the id of an organization`)
    const rows = await organizationsAfter(foundation, { after: cursor ?? '', max: max + 1 })
    const shown = rows.map(({ organization_id, name, balance_micro, charged_micro, live_keys, ...row }) => ({
      organization_id,
      name,
      balance: formatCredits(BigInt(balance_micro)),
      charged: formatCredits(BigInt(charged_micro)),
      created_at: row.registered_at,
      live_keys,
      last_call_at: row.last_call_at,
    }))
    return pageUpTo(shown, { max, cursor: 'organization_id' })
  },
})

export const declarations = [createOrg, listOrgs]
