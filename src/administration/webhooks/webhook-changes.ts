import { randomBytes } from 'node:crypto'
import { CommandRefused } from '../../ledger/command.ts'
import { webhookSealPurpose } from '../../webhooks/send.ts'
import { secretBytes, secretText } from '../../webhooks/signature.ts'
import { recordWebhook, toldOf, type WebhookNamed, type Webhooks, webhookOf } from './webhooks.ts'

/** Changes of an existing webhook: pause it, resume it, give it another secret. Each is recorded before it is made. */

type Asked = WebhookNamed & { readonly actor: string }

/** Nothing more is sent; new messages wait. Throws `CommandRefused` if it is paused already, or does not exist. */
export const pauseWebhook = async (
  { pool, eventLog }: Webhooks,
  { actor, ...named }: Asked,
): Promise<void> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  if (webhook.paused_at !== null) throw new CommandRefused(`webhook ${webhookId} is paused already`)
  await recordWebhook(eventLog, { type: 'WebhookPaused', data: toldOf(webhook) }, actor)
  await pool.query(
    'update webhook_endpoints set paused_at = coalesce(paused_at, now()) where webhook_id = $1',
    [webhookId],
  )
}

/** Waiting messages are sent within two minutes. Throws `CommandRefused` if it is not paused, or does not exist. */
export const resumeWebhook = async (
  { pool, eventLog }: Webhooks,
  { actor, ...named }: Asked,
): Promise<void> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  if (webhook.paused_at === null) throw new CommandRefused(`webhook ${webhookId} is not paused`)
  await recordWebhook(eventLog, { type: 'WebhookResumed', data: toldOf(webhook) }, actor)
  await pool.query('update webhook_endpoints set paused_at = null where webhook_id = $1', [webhookId])
}

/**
 * A new secret, returned here and never again. Messages are also signed with the previous one for `graceMs`; an even older one
 * is no longer used. Throws `CommandRefused` if the webhook does not exist.
 */
export const rotateWebhookSecret = async (
  { pool, eventLog, secrets }: Webhooks,
  { graceMs, actor, ...named }: Asked & { readonly graceMs: number },
): Promise<{ secret: string; formerUntil: Date }> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  const secret = secretText(randomBytes(secretBytes))
  const formerUntil = new Date(Date.now() + graceMs)
  const data = { ...toldOf(webhook), former_until: formerUntil.toISOString() }
  await recordWebhook(eventLog, { type: 'WebhookSecretRotated', data }, actor)
  const { rowCount } = await pool.query(
    `update webhook_endpoints set sealed_secret = $2, former_sealed_secret = sealed_secret, former_until = $3
      where webhook_id = $1`,
    [webhookId, secrets.sealer(webhookSealPurpose).seal(secret, webhookId), formerUntil],
  )
  // It was deleted a moment ago.
  if (rowCount === 0) throw new CommandRefused(`there is no webhook ${webhookId}; see "webhook list"`)
  return { secret, formerUntil }
}
