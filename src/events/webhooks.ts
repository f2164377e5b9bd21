import { z } from 'zod'
import { instant, organizationId } from './primitives.ts'

/** The notices a webhook can receive. */
export const webhookEvent = z.enum(['balance.low', 'price.changed', 'key.expiring', 'checkpoint'])
export type WebhookEvent = z.infer<typeof webhookEvent>

/** `wh_` and a ULID. */
const webhookId = z.string().regex(/^wh_[0-9A-HJKMNP-TV-Z]{26}$/)

/** Only the host of a URL is recorded, because paths of webhooks are often passwords. */
const host = z.string().min(1).max(300)

/** An address receives notices from now on. `organization_id` null: it belongs to the operator. */
export const webhookCreatedV1 = z.object({
  webhook_id: webhookId,
  organization_id: organizationId.nullable(),
  host,
  events: z.array(webhookEvent).min(1).max(20),
})

const oneWebhook = z.object({ webhook_id: webhookId, organization_id: organizationId.nullable(), host })

export const webhookDeletedV1 = oneWebhook

/** Messages wait from now on. */
export const webhookPausedV1 = oneWebhook

/** Messages are sent again: after a pause, or after it was disabled. */
export const webhookResumedV1 = oneWebhook

/** Messages are signed with a new secret, and until then also with the previous one. */
export const webhookSecretRotatedV1 = oneWebhook.extend({ former_until: instant })
