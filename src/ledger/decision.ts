import type { LedgerEvent } from '../events/catalogue.ts'
import type { Account } from './account.ts'

/** The result of deciding a command. Pure. */

/** The ledger does not allow it. `message` is for the operator who asked. */
type LedgerRefusal = { readonly refused: string }
export type Decision = readonly LedgerEvent[] | LedgerRefusal

export const isRefusal = (decision: Decision): decision is LedgerRefusal => 'refused' in decision

export const ifRegistered = (account: Account, event: () => LedgerEvent): Decision =>
  account.registered ? [event()] : { refused: `organization ${account.organizationId} is not registered` }
