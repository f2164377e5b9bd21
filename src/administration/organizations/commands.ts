import { z } from 'zod'
import { creditsText, formatCredits } from '../../billing/money.ts'
import { command, query, wholeOrNot } from '../declare.ts'
import { credits, line } from '../fields.ts'
import { createOrganization, listOrganizations } from './organizations.ts'

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
  changes: { of: 'access', asks: 'never', left: wholeOrNot('org list') },
  plan: async (_, { name, overdraft_limit: limit }) => ({
    says: [
      `Register "${name}", whose balance can go down to ${limit === 0n ? 'zero' : `${creditsText(formatCredits(limit))} below zero`}.`,
    ],
  }),
  run: async ({ foundation, operator }, { name, overdraft_limit: overdraftLimit }) => {
    const { actor } = operator
    const { organizationId } = await createOrganization(foundation, { name, overdraftLimit, actor })
    return { json: { organization_id: organizationId, name, overdraft_limit: formatCredits(overdraftLimit) } }
  },
})

const listOrgs = query({
  name: 'org list',
  action: 'finance.read',
  summary: 'list organizations with their balances',
  input: z.object({}),
  columns: [
    { name: 'organization_id', label: 'Organization', kind: 'organization' },
    { name: 'name', label: 'Name' },
    { name: 'balance', label: 'Balance', kind: 'credits' },
    { name: 'charged', label: 'Charged', kind: 'credits' },
    { name: 'created_at', label: 'Registered (UTC)', kind: 'instant' },
  ],
  next: [{ name: 'org create', label: 'Register an organization' }],
  run: async ({ foundation, logger }) => {
    const rows = await listOrganizations(foundation, logger)
    return {
      json: rows.map(({ organization_id, name, balance_micro, charged_micro, registered_at }) => ({
        organization_id,
        name,
        balance: formatCredits(BigInt(balance_micro)),
        charged: formatCredits(BigInt(charged_micro)),
        created_at: registered_at.toISOString(),
      })),
    }
  },
})

export const declarations = [createOrg, listOrgs]
