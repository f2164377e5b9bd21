import { z } from 'zod'
import { instant, organizationId } from './primitives.ts'

export const webhookEvent = z.enum(['balance.low', 'price.changed', 'key.expiring', 'checkpoint'])
export type WebhookEvent = z.infer<typeof webhookEvent>

/** `wh_` and a ULID. */
const webhookId = z.string().regex(/^wh_[0-9A-HJKMNP-TV-Z]{26}$/)

/** Only the host of the URL is recorded, because the path of a webhook URL is often a secret. */
const host = z.string().min(1).max(300)

/** From now on, this webhook receives notices. If `organization_id` is null, it belongs to the operator. */
export const webhookCreatedV1 = z.object({
  webhook_id: webhookId,
  organization_id: organizationId.nullable(),
  host,
  events: z.array(webhookEvent).min(1).max(20),
})

const oneWebhook = z.object({ webhook_id: webhookId, organization_id: organizationId.nullable(), host })

export const webhookDeletedV1 = oneWebhook

/** From now on, messages are kept until the webhook is resumed. */
export const webhookPausedV1 = oneWebhook

/** The webhook was paused or disabled, and now receives messages again. */
export const webhookResumedV1 = oneWebhook

/** Messages are signed with a new secret and, until `former_until`, also with the previous one. */
export const webhookSecretRotatedV1 = oneWebhook.extend({ former_until: instant })
