import type { ProfileData, ProfileIds, ProfileRef } from '../sources/provider.ts'

/** Who is asked for; `hmac` is what the event log knows the identifier by. */
export type Asked = { readonly ref: ProfileRef; readonly hmac: string }

export const askedFor = (ref: ProfileRef, identifierHmac: (identifier: string) => string): Asked => ({
  ref,
  hmac: identifierHmac(`${ref.kind}:${ref.value}`),
})

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
