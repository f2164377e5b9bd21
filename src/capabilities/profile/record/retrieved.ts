import type { ProfileData, ProfileIds, ProfileRef } from '../sources/provider.ts'

/**
 * Who is asked for; `hmac` is what the event log knows the identifier by from now on, `hmacs` what it may know it by: one under
 * each key, that first.
 */
export type Asked = { readonly ref: ProfileRef; readonly hmac: string; readonly hmacs: readonly string[] }

/** `identifierHmacs` gives one keyed hash for each key, that of the key in use first. */
export const askedFor = (
  ref: ProfileRef,
  identifierHmacs: (identifier: string) => readonly string[],
): Asked => {
  const hmacs = identifierHmacs(`${ref.kind}:${ref.value}`)
  return { ref, hmac: hmacs[0] ?? '', hmacs }
}

/** What a caller is told. */
export type Retrieved =
  | {
      readonly kind: 'found'
      readonly source: 'cached' | 'fresh'
      readonly ageMs: number
      readonly subjectId: string
      readonly ids: ProfileIds
      readonly data: ProfileData
    }
  | { readonly kind: 'deleted'; readonly subjectId: string; readonly ageMs: number }
  | { readonly kind: 'missing' }
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }

/** What is sealed. */
export type Payload = { readonly ids: ProfileIds; readonly data: ProfileData }

/** When a caller who was told nothing is to come back. */
export const retryAfterSeconds = { late: 2, busy: 1, failed: 5 } as const

/** Nothing can be told now. */
export const unavailable = (retryAfterSeconds: number): Retrieved => ({
  kind: 'unavailable',
  retryAfterSeconds,
})
