import { graceMsOf } from '../administration/keys/key-request.ts'
import {
  pauseWebhook,
  resumeWebhook,
  rotateWebhookSecret,
} from '../administration/webhooks/webhook-changes.ts'
import { webhookOf } from '../administration/webhooks/webhooks.ts'
import type { Command, CommandContext, Parameter } from './command.ts'

/** Commands that change existing webhooks: pause, resume, and replace the secret. */

export const webhookParameter: Parameter = {
  name: 'webhook',
  help: 'webhook id, such as wh_01J…',
  required: true,
}

const graceDefault = '24h'

const placeOf = async ({ foundation }: Pick<CommandContext, 'foundation'>, id: string): Promise<string> => {
  const { organization_id, url } = await webhookOf((await foundation()).pool, id)
  return `webhook ${id} to ${new URL(url).host} of ${organization_id ?? 'this installation'}`
}

const pause: Command = {
  name: 'webhook pause',
  summary: 'send a webhook nothing for now; what it is told of meanwhile waits',
  parameters: [webhookParameter],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'The pause may be on record and not have begun: "webhook list" says which.',
    plan: async (context, given) => ({
      says: [`Send nothing to ${await placeOf(context, given.required('webhook'))} until it is resumed.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const webhookId = given.required('webhook')
    const open = await foundation()
    await pauseWebhook(open, { webhookId, ...open.operator })
    return { json: { webhook_id: webhookId, paused: true } }
  },
}

const resume: Command = {
  name: 'webhook resume',
  summary: 'end the pause of a webhook; what waits is sent within two minutes',
  parameters: [webhookParameter],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'The end of the pause may be on record and not have come: "webhook list" says which.',
    plan: async (context, given) => ({
      says: [`Send what waits, and what comes, to ${await placeOf(context, given.required('webhook'))}.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const webhookId = given.required('webhook')
    const open = await foundation()
    await resumeWebhook(open, { webhookId, ...open.operator })
    return { json: { webhook_id: webhookId, paused: false } }
  },
}

const rotateSecret: Command = {
  name: 'webhook rotate-secret',
  summary: 'give a webhook a new secret, shown once, here; the former one signs too for a while',
  parameters: [
    webhookParameter,
    { name: 'grace', help: `how long the former secret signs too, such as 1h (default ${graceDefault})` },
  ],
  changes: {
    of: 'settings',
    asks: 'always',
    left: 'There may be a new secret that no one has seen: "webhook rotate-secret" again makes another.',
    plan: async (context, given) => {
      const grace = given.text('grace') ?? graceDefault
      graceMsOf(grace)
      return {
        says: [
          `Give ${await placeOf(context, given.required('webhook'))} a new secret; the former one signs too for ${grace}.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const webhookId = given.required('webhook')
    const graceMs = graceMsOf(given.text('grace') ?? graceDefault)
    const open = await foundation()
    const rotated = await rotateWebhookSecret(open, { webhookId, graceMs, ...open.operator })
    return {
      json: {
        webhook_id: webhookId,
        secret: rotated.secret,
        former_until: rotated.formerUntil.toISOString(),
      },
    }
  },
}

export const webhookChangeCommands: readonly Command[] = [pause, resume, rotateSecret]
