import type { ProfileData, ProfileIds, ProfileRef } from '../sources/provider.ts'

/** The requested person. The event log contains the identifier only as `hmac`. */
export type Asked = { readonly ref: ProfileRef; readonly hmac: string }

export const askedFor = (ref: ProfileRef, identifierHmac: (identifier: string) => string): Asked => ({
  ref,
  hmac: identifierHmac(`${ref.kind}:${ref.value}`),
})

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

export type Payload = { readonly ids: ProfileIds; readonly data: ProfileData }

export const retryAfterSeconds = { late: 2, busy: 1, failed: 5 } as const

/** Returns the answer if no data is available now. */
export const unavailable = (retryAfterSeconds: number): Retrieved => ({
  kind: 'unavailable',
  retryAfterSeconds,
})
