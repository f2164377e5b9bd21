import type { UserRole } from '../events/users.ts'

/**
 * The actor. A proved person signed in to the dashboard, or holds a token (`operator-tokens.ts`); any other actor is a label
 * that anyone can write. Pure.
 */

/**
 * `user:<name>`: proved. `cli:<label>`: typed, or the account name on the operator's machine. `system`: the system's own acts.
 * `role`: the rights of a proved person; null: not proved, with direct access to the database and its secrets.
 */
export type Operator = { readonly actor: string; readonly role: UserRole | null }

/** The name of a person, which only their session or token can prove; null for any other actor. */
export const provedUserOf = (actor: string): string | null =>
  actor.startsWith('user:') ? actor.slice('user:'.length) : null

export const provedOperator = (user: string): { readonly actor: string } => ({ actor: `user:${user}` })

export const labelledOperator = (label: string): Operator => ({ actor: `cli:${label}`, role: null })
