import { z } from 'zod'
import type { CapabilityDocument, DescribedCall } from '../../call/form.ts'
import { permission } from '../../events/capabilities.ts'
import { instant } from '../../events/primitives.ts'
import examples from './examples.json' with { type: 'json' }

/** The wire of GET /whoami (Spec §2.2): the whole body, without an envelope (decision 1). */
export const whoamiBody = z.object({
  organization: z.string(),
  api_key_id: z.string(),
  permissions: z.array(permission),
  rate_limits: z.object({ requests_per_minute: z.number(), requests_per_day: z.number() }),
  created_at: instant,
  last_used: instant,
})
export type Whoami = z.infer<typeof whoamiBody>

/** What people read about whoami. */

export const whoamiCall: DescribedCall = {
  capability: 'whoami',
  permission: null,
  method: 'GET',
  path: '/whoami',
  body: 'flat',
  document: {
    operationId: 'whoami',
    summary: 'Whose key is this?',
    description:
      'The organization and the details of the key that asks. The host of the dashboard answers it too. Free.',
    request: null,
    result: whoamiBody,
    codes: [],
  },
}

export const document: CapabilityDocument = {
  tag: 'whoami',
  about: 'The key itself.',
  calls: [whoamiCall],
  examples,
  firstCall: { call: whoamiCall, body: null },
}
