import type { UserRole } from '../events/users.ts'

/**
 * Who acts. A proved person signed in to the dashboard, or holds a token (`operator-tokens.ts`); anything else is a label
 * that anyone can write. Pure.
 */

/**
 * `user:<name>`: proved. `cli:<label>`: typed, or the name of the account on the machine that typed. `system`: the system's own acts.
 * `role`: what a proved person may do; null: not proved, with the database and its secrets at hand.
 */
export type Operator = { readonly actor: string; readonly role: UserRole | null }

/** The name of a person whom nothing but a session or a token of theirs can name; null for any other actor. */
export const provedUserOf = (actor: string): string | null =>
  actor.startsWith('user:') ? actor.slice('user:'.length) : null

export const provedOperator = (user: string): { readonly actor: string } => ({ actor: `user:${user}` })

export const labelledOperator = (label: string): Operator => ({ actor: `cli:${label}`, role: null })
