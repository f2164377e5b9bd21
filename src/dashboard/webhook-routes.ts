import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { graceMsOf } from '../administration/keys/key-request.ts'
import { provedOperator } from '../administration/operator.ts'
import {
  pauseWebhook,
  resumeWebhook,
  rotateWebhookSecret,
} from '../administration/webhooks/webhook-changes.ts'
import { webhookEventsOf, webhookUrlOf } from '../administration/webhooks/webhook-request.ts'
import {
  createWebhook,
  deleteWebhook,
  type ListedWebhook,
  listDeliveries,
  listWebhooks,
  resendDelivery,
  testWebhook,
} from '../administration/webhooks/webhooks.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { type Form, formOf } from './form.ts'
import {
  accountAt,
  attemptOnce,
  type Dashboard,
  type OrganizationParams,
  PageMissing,
  sendPage,
  viewerOf,
} from './page.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { deleteWebhookPage, webhookPage, webhookTestedPage } from './pages/webhook.ts'
import { webhookSecretPage, webhooksPage } from './pages/webhooks.ts'
import type { AccountRow } from './queries.ts'
import { begin } from './work-routes.ts'

/** The webhooks of one organization, through the functions that the command line calls. */

type WebhookParams = { Params: { organization: string; webhook: string } }

const listPath = '/organizations/:organization/webhooks'
const path = `${listPath}/:webhook`
const webhookIdPattern = /^wh_[0-9A-HJKMNP-TV-Z]{26}$/
const deliveriesShown = 50

export const webhookRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  listRoutes(pages, context)
  oneRoutes(pages, context)
  changeRoutes(pages, context)
  deleteRoutes(pages, context)
  testRoute(pages, context)
}

type Found = { readonly account: AccountRow; readonly webhook: ListedWebhook }

/** Throws `PageMissing` for anything but a webhook of this organization, so that webhooks of others are not revealed. */
const webhookAt = async (context: Dashboard, params: WebhookParams['Params']): Promise<Found> => {
  const account = await accountAt(context, params.organization)
  if (!webhookIdPattern.test(params.webhook)) throw new PageMissing()
  const webhook = (await listWebhooks(context.foundation, account.organization_id)).find(
    ({ webhook_id }) => webhook_id === params.webhook,
  )
  if (webhook === undefined) throw new PageMissing()
  return { account, webhook }
}

const listRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, outside } = context

  const listPage = async (
    account: AccountRow,
    shown: { readonly viewer: Viewer; readonly typed: Form; readonly fault: FormFault | null },
  ) => webhooksPage({ account, webhooks: await listWebhooks(foundation, account.organization_id), ...shown })

  pages.get<OrganizationParams>(listPath, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    return sendPage(reply, await listPage(account, { viewer, typed: formOf({}), fault: null }))
  })

  pages.post<OrganizationParams>(listPath, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async (form) =>
      createWebhook(foundation, {
        organizationId: account.organization_id,
        url: webhookUrlOf(form.text('url'), { guard: outside.guard, exemptions: false }),
        events: webhookEventsOf(form.list('events'), account.organization_id),
        ...provedOperator(viewer.user),
      }),
    )
    if ('done' in outcome)
      return sendPage(reply, webhookSecretPage({ viewer, account, ...outcome.done, formerUntil: null }))
    const typed = formOf(request.body)
    return sendPage(reply.code(422), await listPage(account, { viewer, typed, fault: outcome.fault }))
  })
}

const shownOf = async (
  { foundation }: Dashboard,
  { account, webhook }: Found,
  { viewer, fault }: { readonly viewer: Viewer; readonly fault: FormFault | null },
) => {
  const found = await listDeliveries(foundation, {
    webhookId: webhook.webhook_id,
    state: null,
    max: deliveriesShown + 1,
  })
  return webhookPage({
    viewer,
    account,
    webhook,
    fault,
    deliveries: found.slice(0, deliveriesShown),
    more: found.length > deliveriesShown,
  })
}

const oneRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  pages.get<WebhookParams>(path, async (request, reply) => {
    const found = await webhookAt(context, request.params)
    return sendPage(reply, await shownOf(context, found, { viewer: viewerOf(request, reply), fault: null }))
  })

  pages.post<WebhookParams>(`${path}/rotate`, async (request, reply) => {
    const found = await webhookAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const { webhook_id: webhookId } = found.webhook
    const outcome = await attemptOnce(context, request, async (form) =>
      rotateWebhookSecret(foundation, {
        webhookId,
        graceMs: graceMsOf(form.text('grace')),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome)
      return sendPage(reply.code(422), await shownOf(context, found, { viewer, fault: outcome.fault }))
    return sendPage(reply, webhookSecretPage({ viewer, account: found.account, webhookId, ...outcome.done }))
  })
}

/** Done immediately; the page of the webhook shows the result. */
const changeRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  const acts: Readonly<
    Record<
      'pause' | 'resume' | 'resend',
      (asked: { webhookId: string; actor: string }, form: Form) => Promise<unknown>
    >
  > = {
    pause: (asked) => pauseWebhook(foundation, asked),
    resume: (asked) => resumeWebhook(foundation, asked),
    resend: ({ webhookId }, form) =>
      resendDelivery(foundation, { webhookId, deliveryId: form.text('delivery') }),
  }
  for (const [name, act] of Object.entries(acts))
    pages.post<WebhookParams>(`${path}/${name}`, async (request, reply) => {
      const found = await webhookAt(context, request.params)
      const viewer = viewerOf(request, reply)
      const { webhook_id: webhookId } = found.webhook
      const outcome = await attemptOnce(context, request, async (form) =>
        act({ webhookId, ...provedOperator(viewer.user) }, form),
      )
      return 'fault' in outcome
        ? sendPage(reply.code(422), await shownOf(context, found, { viewer, fault: outcome.fault }))
        : reply.redirect(`/organizations/${found.account.organization_id}/webhooks/${webhookId}`, 303)
    })
}

const deleteRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<WebhookParams>(`${path}/delete`, async (request, reply) => {
    const found = await webhookAt(context, request.params)
    return sendPage(reply, deleteWebhookPage({ viewer: viewerOf(request, reply), ...found, fault: null }))
  })

  pages.post<WebhookParams>(`${path}/delete`, async (request, reply) => {
    const found = await webhookAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async () =>
      deleteWebhook(context.foundation, {
        webhookId: found.webhook.webhook_id,
        ...provedOperator(viewer.user),
      }),
    )
    return 'fault' in outcome
      ? sendPage(reply.code(422), deleteWebhookPage({ viewer, ...found, fault: outcome.fault }))
      : reply.redirect(`/organizations/${found.account.organization_id}/webhooks`, 303)
  })
}

/** A receiver may take seconds to answer, so the answer is awaited on a separate page. One at a time per organization. */
const testRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, outside } = context
  const testing = new Set<string>()

  const test = async (request: FastifyRequest, reply: FastifyReply, found: Found) => {
    const viewer = viewerOf(request, reply)
    const { account, webhook } = found
    return begin(context, reply, {
      key: `webhook-test/${viewer.once}`,
      title: 'Sending a test message',
      run: async () => {
        if (testing.has(account.organization_id))
          throw new CommandRefused('another test message is under way; wait for its answer')
        testing.add(account.organization_id)
        try {
          const tested = await testWebhook(foundation, {
            webhookId: webhook.webhook_id,
            outside,
            ...provedOperator(viewer.user),
          })
          return { page: (of) => webhookTestedPage({ viewer: of, account, webhook, tested }) }
        } finally {
          testing.delete(account.organization_id)
        }
      },
    })
  }

  pages.post<WebhookParams>(`${path}/test`, async (request, reply) => {
    const found = await webhookAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, async () => undefined)
    return 'fault' in outcome
      ? sendPage(reply.code(422), await shownOf(context, found, { viewer, fault: outcome.fault }))
      : test(request, reply, found)
  })
}
