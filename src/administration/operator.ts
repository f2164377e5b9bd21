import type { UserRole } from '../events/users.ts'

/**
 * An actor `user:<name>` has proved their identity, by signing in to the dashboard or with a token (`operator-tokens.ts`). An actor
 * `cli:<label>` is a label that anyone can write, and `system` is the service itself. `role` is null for an operator without a proven
 * identity, who has direct access to the database and its secrets.
 */
export type Operator = { readonly actor: string; readonly role: UserRole | null }

/** The name of a user, which only a session or a token can prove; null for any other actor. */
export const provedUserOf = (actor: string): string | null =>
  actor.startsWith('user:') ? actor.slice('user:'.length) : null

export const provedOperator = (user: string): { readonly actor: string } => ({ actor: `user:${user}` })

export const labelledOperator = (label: string): Operator => ({ actor: `cli:${label}`, role: null })
