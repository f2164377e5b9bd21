import type { UserRole } from '../events/users.ts'

/**
 * The actor `user:<name>` is a verified user, who has signed in to the dashboard or uses a token (`operator-tokens.ts`). The actor
 * `cli:<label>` is an unverified name, and `system` is the service itself. `role` is null for an operator with an unverified name,
 * who has direct access to the database and its secrets.
 */
export type Operator = { readonly actor: string; readonly role: UserRole | null }

/** The name of a verified user; null for any other actor. */
export const provedUserOf = (actor: string): string | null =>
  actor.startsWith('user:') ? actor.slice('user:'.length) : null

export const provedOperator = (user: string): { readonly actor: string } => ({ actor: `user:${user}` })

export const labelledOperator = (label: string): Operator => ({ actor: `cli:${label}`, role: null })
