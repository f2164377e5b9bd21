import type { FastifyInstance } from 'fastify'
import { listDeliveries, listWebhooks } from '../administration/webhooks/webhooks.ts'
import {
  accountAt,
  type Dashboard,
  type OrganizationParams,
  PageMissing,
  sendPage,
  viewerOf,
} from './page.ts'
import { webhookPage } from './pages/webhook.ts'
import { webhooksPage } from './pages/webhooks.ts'

/** The webhooks of one organization, and the messages of one of them. */

type WebhookParams = { Params: { organization: string; webhook: string } }

const path = '/organizations/:organization/webhooks'
const deliveriesShown = 50

export const webhookRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const webhooks = await listWebhooks(foundation, account.organization_id)
    return sendPage(reply, webhooksPage({ viewer: viewerOf(request, reply), account, webhooks }))
  })

  pages.get<WebhookParams>(`${path}/:webhook`, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const webhook = (await listWebhooks(foundation, account.organization_id)).find(
      ({ webhook_id }) => webhook_id === request.params.webhook,
    )
    if (webhook === undefined) throw new PageMissing()
    const found = await listDeliveries(foundation, {
      webhookId: webhook.webhook_id,
      state: null,
      max: deliveriesShown + 1,
    })
    return sendPage(
      reply,
      webhookPage({
        viewer: viewerOf(request, reply),
        account,
        webhook,
        deliveries: found.slice(0, deliveriesShown),
        more: found.length > deliveriesShown,
      }),
    )
  })
}
