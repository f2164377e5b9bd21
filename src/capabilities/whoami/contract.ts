import { z } from 'zod'
import { permission } from '../../events/capabilities.ts'
import { instant } from '../../events/primitives.ts'

/** The wire format of GET /whoami (Spec §2.2), without an envelope (decision 1). */
export const whoamiBody = z.object({
  organization: z.string(),
  api_key_id: z.string(),
  permissions: z.array(permission),
  rate_limits: z.object({ requests_per_minute: z.number(), requests_per_day: z.number() }),
  created_at: instant,
  last_used: instant,
})
export type Whoami = z.infer<typeof whoamiBody>
