/**
 * Who acts. A proved person signed in to the dashboard, or holds a token (`operator-tokens.ts`); anything else is a label
 * that anyone can write. Pure.
 */

/** `user:<name>`: proved. `cli:<label>` and `cli`: typed. `system`: the system's own acts. */
export type Operator = { readonly actor: string }

/** The name of a person whom nothing but a session or a token of theirs can name; null for any other actor. */
export const provedUserOf = (actor: string): string | null =>
  actor.startsWith('user:') ? actor.slice('user:'.length) : null

export const provedOperator = (user: string): Operator => ({ actor: `user:${user}` })

export const labelledOperator = (label: string | null): Operator => ({
  actor: label === null ? 'cli' : `cli:${label}`,
})
