import type { UserRole } from '../events/users.ts'

/** The rights of each role, for all interfaces. The caller must check that partners see and change only their own organization. */

export const roles = [
  'admin',
  'finance',
  'operations',
  'viewer',
  'partner',
] as const satisfies readonly UserRole[]

/** The rights, in the words of the table in src/guides/users.md, "Who may do what?". */
export const rolePermissions = {
  /** Balances, statements, usage, keys and calls of an organization; prices. */
  'accounts.read': ['admin', 'finance', 'operations', 'viewer', 'partner'],
  /** Find the calls about an e-mail address, IP address or profile. */
  'calls.find': ['admin', 'finance', 'operations', 'partner'],
  /** All organizations, price proposals, re-rates, reconciliations. */
  'finance.read': ['admin', 'finance', 'operations', 'viewer'],
  /** The event log, projections, jobs, processes, checkpoints, lists. */
  'system.read': ['admin', 'finance', 'operations', 'viewer'],
  'audit.read': ['admin', 'finance', 'operations', 'viewer'],
  'users.read': ['admin', 'operations', 'viewer'],
  'organizations.change': ['admin', 'finance'],
  /** Issue, rotate, limit and revoke keys. */
  'keys.change': ['admin', 'operations', 'partner'],
  /** Replace a leaked key and refund its calls. Changes both keys and credits. */
  'keys.replace': ['admin'],
  /** Grants, refunds, adjustments, voids, thresholds. */
  'credits.change': ['admin', 'finance'],
  /** Propose, approve and withdraw price books and overrides. */
  'prices.change': ['admin', 'finance'],
  'rerates.change': ['admin', 'finance'],
  /** Close a month, reconcile, acknowledge a fault of a ledger. */
  'ledgers.change': ['admin', 'finance'],
  /** A whole ledger as a file, which contains names of the operator's users. */
  'ledgers.read': ['admin', 'finance', 'viewer'],
  /** A statement or a receipt as a file. */
  'ledgers.export': ['admin', 'finance', 'viewer', 'partner'],
  /** Set and remove limits and blocks of the pixel. */
  'pixel.change': ['admin', 'operations', 'partner'],
  'webhooks.change': ['admin', 'operations', 'partner'],
  /** Rebuild, retry, release. */
  'projections.change': ['admin', 'operations'],
  'jobs.run': ['admin', 'operations'],
  /** Checkpoints, copies, backups, signing and epoch keys. */
  'log.change': ['admin', 'operations'],
  /** Companies, profiles, lists: imports and refreshes. */
  'data.change': ['admin', 'operations'],
  /** Erase a person permanently. */
  'profiles.erase': ['admin', 'operations'],
  'users.change': ['admin'],
  'installation.change': ['admin'],
} as const satisfies Readonly<Record<string, readonly UserRole[]>>

export type Action = keyof typeof rolePermissions

const allowedTo = (action: Action): readonly UserRole[] => rolePermissions[action]

export const mayDo = (role: UserRole, action: Action): boolean => allowedTo(action).includes(role)

/** The roles with a right, for a sentence: `admin or finance`. */
export const rolesThatMay = (action: Action): string => {
  const names = allowedTo(action)
  return names.length === 1 ? String(names[0]) : `${names.slice(0, -1).join(', ')} or ${names.at(-1)}`
}
