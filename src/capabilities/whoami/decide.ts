import type { CallDecision, Caller } from '../../call/form.ts'
import type { Whoami } from './contract.ts'

export type WhoamiFindings = {
  readonly key: Caller['key']
  readonly lastUsedAt: string | null
  readonly nowMs: number
}

/** Describes the key to its holder. A key without earlier use counts as used by this call. */
export const decide = ({ key, lastUsedAt, nowMs }: WhoamiFindings): CallDecision<Whoami> => ({
  result: {
    organization: key.organizationName,
    api_key_id: key.keyId,
    permissions: [...key.permissions],
    rate_limits: {
      requests_per_minute: key.limits.requests_per_minute,
      requests_per_day: key.limits.requests_per_day,
    },
    created_at: key.createdAt,
    last_used: lastUsedAt ?? new Date(nowMs).toISOString(),
  },
  facts: { kind: 'whoami' },
})
