import { balance, grant } from '../administration/credits.ts'
import { amountOf, futureInstantOf, labelOf, wholeNumber } from '../administration/input.ts'
import { formatCredits } from '../billing/money.ts'
import { type Command, organizationParameter } from './command.ts'

export const creditsCommands: readonly Command[] = [
  {
    name: 'credits grant',
    summary: 'grant a lot of credits',
    parameters: [
      organizationParameter,
      { name: 'amount', help: 'credits, at most 6 decimals', required: true },
      { name: 'expires-at', help: 'ISO 8601 instant from which the rest is worth nothing (default never)' },
      { name: 'priority', help: '0 to 1000, lower is drawn first (default 100)' },
      { name: 'reason', help: 'kept in the event log (default "granted by operator")' },
    ],
    run: async ({ foundation }, given) => {
      const organizationId = given.required('org')
      const amount = amountOf('amount', given.required('amount'), { zero: false })
      const expiry = given.text('expires-at')
      const wanted = {
        organizationId,
        amount,
        priority: wholeNumber('priority', given.text('priority') ?? '100', { min: 0, max: 1000 }),
        expiresAt: expiry === undefined ? null : futureInstantOf('expires-at', expiry, Date.now()),
        reason: labelOf('reason', given.text('reason') ?? 'granted by operator'),
        actor: 'cli',
      }
      const granted = await grant(await foundation(), wanted)
      return {
        json: {
          organization_id: organizationId,
          grant_id: granted.grantId,
          amount: formatCredits(amount),
          balance: formatCredits(granted.balance),
          revision: granted.revision,
        },
      }
    },
  },
  {
    name: 'credits balance',
    summary: 'the balance, from the ledger itself',
    parameters: [organizationParameter],
    run: async ({ foundation }, given) => {
      const organizationId = given.required('org')
      const found = await balance(await foundation(), organizationId)
      return {
        json: {
          organization_id: organizationId,
          name: found.name,
          balance: formatCredits(found.balance),
          available: formatCredits(found.available),
          revision: found.revision,
        },
      }
    },
  },
]
