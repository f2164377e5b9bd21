import { amountOf, labelOf } from '../administration/input.ts'
import { createOrganization, listOrganizations } from '../administration/organizations/organizations.ts'
import { formatCredits } from '../billing/money.ts'
import { type Command, type Given, wholeOrNot } from './command.ts'
import { cut, nameCharsMax, table } from './table.ts'

const registrationOf = (given: Given) => ({
  name: labelOf('name', given.required('name')),
  overdraftLimit: amountOf('overdraft-limit', given.text('overdraft-limit') ?? '0', { zero: true }),
})

export const organizationCommands: readonly Command[] = [
  {
    name: 'org create',
    summary: 'register an organization and open its ledger',
    parameters: [
      { name: 'name', help: 'what partners and statements call it', required: true },
      { name: 'overdraft-limit', help: 'how far below zero its balance may go (default 0)' },
    ],
    changes: {
      of: 'access',
      asks: 'never',
      left: wholeOrNot('org list'),
      plan: async (_, given) => {
        const { name, overdraftLimit } = registrationOf(given)
        return {
          says: [
            `Register "${name}", whose balance may go ${overdraftLimit === 0n ? 'to zero' : `${formatCredits(overdraftLimit)} credits below zero`}.`,
          ],
        }
      },
    },
    run: async ({ foundation }, given) => {
      const { name, overdraftLimit } = registrationOf(given)
      const open = await foundation()
      const { organizationId } = await createOrganization(open, {
        name,
        overdraftLimit,
        ...open.operator,
      })
      return {
        json: { organization_id: organizationId, name, overdraft_limit: formatCredits(overdraftLimit) },
      }
    },
  },
  {
    name: 'org list',
    summary: 'list organizations with their balances',
    parameters: [],
    changes: 'nothing',
    run: async ({ foundation, logger }) => {
      const rows = await listOrganizations(await foundation(), logger)
      const listed = rows.map((row) => ({
        organization_id: row.organization_id,
        name: row.name,
        balance: formatCredits(BigInt(row.balance_micro)),
        charged: formatCredits(BigInt(row.charged_micro)),
        created_at: row.registered_at.toISOString(),
      }))
      return {
        json: listed,
        lines: table(listed.map((one) => ({ ...one, name: cut(one.name, nameCharsMax) }))),
      }
    },
  },
]
