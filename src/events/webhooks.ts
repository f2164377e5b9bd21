import { z } from 'zod'
import { organizationId } from './primitives.ts'

/** What a webhook can be told of. */
export const webhookEvent = z.enum(['balance.low', 'price.changed', 'key.expiring', 'checkpoint'])
export type WebhookEvent = z.infer<typeof webhookEvent>

/** `wh_` and a ULID. */
const webhookId = z.string().regex(/^wh_[0-9A-HJKMNP-TV-Z]{26}$/)

/** Of a URL the host alone is recorded: paths of webhooks often are passwords. */
const host = z.string().min(1).max(300)

/** An address is told of events from now on. `organization_id` null: it belongs to the operator. */
export const webhookCreatedV1 = z.object({
  webhook_id: webhookId,
  organization_id: organizationId.nullable(),
  host,
  events: z.array(webhookEvent).min(1).max(20),
})

export const webhookDeletedV1 = z.object({
  webhook_id: webhookId,
  organization_id: organizationId.nullable(),
  host,
})
