import { randomBytes } from 'node:crypto'
import type { MicroCredits } from '../billing/money.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { availableOf, balanceOf } from '../ledger/account.ts'
import { CommandRefused } from '../ledger/commit.ts'

/** A ledger command's key that no other command has: an operator's command is never repeated by a machine. */
export const uniqueCommandKey = (what: string): string => `${what}/${randomBytes(16).toString('hex')}`

type GrantRequest = {
  readonly organizationId: string
  readonly amount: MicroCredits
  readonly priority: number
  readonly expiresAt: string | null
  readonly reason: string
  readonly actor: string
}

/** Grants a lot of credits. Throws `CommandRefused` for an organization that is not registered. */
export const grant = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, amount, priority, expiresAt, reason, actor }: GrantRequest,
): Promise<{ grantId: string; balance: MicroCredits; revision: number }> => {
  const key = uniqueCommandKey('grant')
  const { balance, revision } = await ledger.submit(organizationId, {
    key,
    atMs: Date.now(),
    actor,
    kind: 'grant',
    amount,
    priority,
    expiresAt,
    reason,
  })
  return { grantId: eventIdOf(organizationId, key, 0), balance, revision }
}

/** The balance as the ledger has it at this moment. Throws `CommandRefused` for an organization that is not registered. */
export const balance = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  organizationId: string,
): Promise<{ balance: MicroCredits; available: MicroCredits; revision: number; name: string }> => {
  const account = await ledger.account(organizationId)
  if (!account.registered)
    throw new CommandRefused(`there is no organization ${organizationId}; see "org list"`)
  const now = Date.now()
  return {
    balance: balanceOf(account, now),
    available: availableOf(account, now),
    revision: account.revision,
    name: account.name,
  }
}
