import { randomBytes } from 'node:crypto'
import { ulid } from 'ulid'
import { type MicroCredits, microPerCredit, parseCredits } from '../billing/money.ts'
import { UsageError } from '../cli/command.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { availableOf, balanceOf } from '../ledger/account.ts'
import { CommandRefused } from '../ledger/commit.ts'

/** What operators do with organizations and their credits. Every one of these is an event in the ledger. */

/** A key no other command will have: operators' commands are not repeated by machines. */
const commandKey = (what: string): string => `${what}/${randomBytes(16).toString('hex')}`

export const createOrganization = async (
  { ledger }: Foundation,
  { name, overdraftLimit, actor }: { name: string; overdraftLimit: MicroCredits; actor: string },
): Promise<{ organizationId: string }> => {
  const organizationId = `org_${ulid()}`
  await ledger.submit(organizationId, {
    key: 'register',
    atMs: Date.now(),
    actor,
    kind: 'register',
    name,
    overdraftLimit,
  })
  return { organizationId }
}

export type GrantRequest = {
  readonly organizationId: string
  readonly amount: MicroCredits
  readonly priority: number
  readonly expiresAt: string | null
  readonly reason: string
  readonly actor: string
}

export const grant = async (
  { ledger }: Foundation,
  { organizationId, amount, priority, expiresAt, reason, actor }: GrantRequest,
): Promise<{ grantId: string; balance: MicroCredits; revision: number }> => {
  const key = commandKey('grant')
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

export const setPriceOverride = async (
  { ledger }: Foundation,
  {
    organizationId,
    ...override
  }: {
    organizationId: string
    sku: string
    amount: MicroCredits | null
    effectiveFrom: string
    actor: string
  },
): Promise<void> => {
  await ledger.submit(organizationId, {
    key: commandKey('price-override'),
    atMs: Date.now(),
    kind: 'override_price',
    ...override,
  })
}

/** The balance as the ledger has it at this moment. Throws `CommandRefused` for an organization that is not registered. */
export const balance = async (
  { ledger }: Foundation,
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

/** A thousand million credits: far below where the read models' integers end, far above what anybody grants. */
const amountMax = 1_000_000_000n * microPerCredit

/** An amount of credits as typed by an operator, zero or positive, up to a thousand million. */
export const amountOf = (name: string, text: string, { zero }: { zero: boolean }): MicroCredits => {
  try {
    const amount = parseCredits(text)
    if (amount <= amountMax && (amount > 0n || (zero && amount === 0n))) return amount
  } catch {
    // Told below, with what is expected.
  }
  throw new UsageError(
    `--${name}: a ${zero ? '' : 'positive '}decimal number of credits, such as 100 or 1.5; it is ${text === '' ? 'empty' : text} (up to 1000000000, at most 6 decimals)`,
  )
}
