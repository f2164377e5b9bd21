import { accounts } from './accounts.ts'
import { apiKeys } from './api-keys.ts'
import { audit } from './audit.ts'
import { keyUsage } from './key-usage.ts'
import { ledgerIndex } from './ledger-index.ts'
import { ledgerLines } from './ledger-lines.ts'
import { pixelDays } from './pixel-days.ts'
import { profileCache } from './profile-cache.ts'
import type { Projection } from './projection.ts'
import { usageBuckets } from './usage-buckets.ts'

/** Every projection, in the order in which operators see them. */
export const projections: readonly Projection[] = [
  accounts,
  ledgerLines,
  ledgerIndex,
  usageBuckets,
  apiKeys,
  keyUsage,
  profileCache,
  pixelDays,
  audit,
]
