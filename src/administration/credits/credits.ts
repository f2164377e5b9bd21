import { randomBytes } from 'node:crypto'
import type { MicroCredits } from '../../billing/money.ts'
import type { LedgerEvent } from '../../events/catalogue.ts'
import type { CreditGranted } from '../../events/credits.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { type Account, availableOf, balanceOf, evolve } from '../../ledger/account.ts'
import { CommandRefused, type LedgerCommand } from '../../ledger/command.ts'
import { decideCommand, isRefusal } from '../../ledger/decide.ts'
import { lookUpMovement, type Movement, moveOnce, refuseExpired } from './references.ts'

/** A unique key for a ledger command. It is random, because an operator's command is never repeated automatically. */
export const uniqueCommandKey = (what: string): string => `${what}/${randomBytes(16).toString('hex')}`

type Sources = Pick<Foundation, 'eventLog' | 'ledger'>

type GrantRequest = {
  readonly organizationId: string
  readonly amount: MicroCredits
  readonly priority: number
  readonly expiresAt: string | null
  readonly reason: string
  readonly actor: string
}

/** Grants a lot of credits. Throws `CommandRefused` if the organization is not registered. */
export const grant = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  { organizationId, ...request }: GrantRequest,
): Promise<{ granted: CreditGranted; balance: MicroCredits; revision: number }> => {
  const { events, balance, revision } = await ledger.submit(organizationId, {
    ...request,
    key: uniqueCommandKey('grant'),
    atMs: Date.now(),
    kind: 'grant',
  })
  return { granted: grantIn(events[0]), balance, revision }
}

/**
 * Grants a lot of credits once under a reference: a repeated command finds the same lot (`already`). Throws
 * `CommandRefused` if the reference names another movement.
 */
export const grantOnce = async (
  sources: Sources,
  { reference, ...request }: GrantRequest & { readonly reference: string },
): Promise<{ granted: CreditGranted; balance: MicroCredits; revision: number; already: boolean }> => {
  const { organizationId, actor, amount, priority, expiresAt, reason } = request
  const { event, ...moved } = await moveOnce(sources, {
    organizationId,
    reference,
    named: grantNamed(request),
    command: { kind: 'grant', amount, priority, expiresAt, reason, reference, actor },
  })
  return { granted: grantIn(event), ...moved }
}

const grantNamed = ({ amount, priority, expiresAt }: GrantRequest): Movement => ({
  movement: 'grant',
  amount,
  priority,
  expiresAt,
  requestId: null,
})

const grantIn = (event: LedgerEvent | undefined): CreditGranted => {
  if (event?.type !== 'CreditGranted') throw new Error(`a grant wrote ${event?.type ?? 'nothing'}`)
  return event.data
}

/** The effect that a grant would have now. Throws the errors of `grant`. */
export const previewGrant = async (
  sources: Sources,
  { organizationId, ...request }: GrantRequest & { readonly reference?: string },
): Promise<{ balanceAfter: MicroCredits; already: boolean }> => {
  const { reference } = request
  const named = grantNamed({ organizationId, ...request })
  const known =
    reference === undefined ? null : await lookUpMovement(sources, { organizationId, reference, named })
  const already = known?.there != null
  if (!already) refuseExpired(named)
  const preview = await previewOf(sources, organizationId, { ...request, kind: 'grant' })
  return { balanceAfter: already ? preview.balanceBefore : preview.balanceAfter, already }
}

export type Preview = {
  readonly events: readonly LedgerEvent[]
  readonly balanceBefore: MicroCredits
  readonly balanceAfter: MicroCredits
}

/** The id of previewed events. No recorded event has this id. */
const noEventId = '00000000-0000-0000-0000-000000000000'

type Unkeyed<Command> = Command extends LedgerCommand ? Omit<Command, 'key' | 'atMs'> : never

/**
 * Decides a command as the ledger would decide it now, and writes nothing. Throws `CommandRefused` if the ledger would refuse the
 * command.
 */
export const previewOf = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  organizationId: string,
  unkeyed: Unkeyed<LedgerCommand>,
): Promise<Preview> => {
  const atMs = Date.now()
  const account = await ledger.account(organizationId)
  const command: LedgerCommand = { ...unkeyed, key: 'preview', atMs }
  const events = decideCommand(account, command, () => noEventId, atMs)
  if (isRefusal(events)) throw new CommandRefused(events.refused)
  const balanceBefore = balanceOf(account, atMs)
  for (const event of events) evolve(account, event, account.revision + 1)
  return { events, balanceBefore, balanceAfter: balanceOf(account, atMs) }
}

/** The current account. Throws `CommandRefused` if the organization is not registered. */
export const registeredAccount = async (
  ledger: Pick<Foundation['ledger'], 'account'>,
  organizationId: string,
): Promise<Readonly<Account>> => {
  const account = await ledger.account(organizationId)
  if (account.registered) return account
  throw new CommandRefused(`there is no organization ${organizationId}; see "org list"`)
}

/** The current balance in the ledger. Throws `CommandRefused` if the organization is not registered. */
export const balance = async (
  { ledger }: Pick<Foundation, 'ledger'>,
  organizationId: string,
): Promise<{ balance: MicroCredits; available: MicroCredits; revision: number; name: string }> => {
  const account = await registeredAccount(ledger, organizationId)
  const now = Date.now()
  return {
    balance: balanceOf(account, now),
    available: availableOf(account, now),
    revision: account.revision,
    name: account.name,
  }
}
