import type { FastifyInstance, FastifyRequest } from 'fastify'
import { labelOf } from '../administration/input.ts'
import { type IssuedKey, issueKey, KeyIssuedBefore, revoke, rotate } from '../administration/keys/api-keys.ts'
import { graceMsOf } from '../administration/keys/key-request.ts'
import { openTestOrganization } from '../administration/keys/test-keys.ts'
import { provedOperator } from '../administration/operator.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { firstCalls } from './first-call.ts'
import { formOf, freshIssueForm, parseIssue } from './form.ts'
import {
  accountAt,
  attempt,
  attemptOnce,
  type Dashboard,
  type KeyParams,
  keyAt,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import {
  issueKeyPage,
  keyIssuedBeforePage,
  keyShownPage,
  revokeKeyPage,
  rotateKeyPage,
} from './pages/keys.ts'
import { shownSoon } from './shown-soon.ts'

/** The forms that issue, rotate and revoke a key. Every change is a POST and records who made it. */

const oncePattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** Three forms, each with a GET that shows it and a POST that makes the change. */
export const keyRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  issueRoutes(pages, context)
  rotateRoutes(pages, context)
  revokeRoutes(pages, context)
}

const issueRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const path = '/organizations/:organization/keys/new'

  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    return sendPage(
      reply,
      issueKeyPage({
        viewer: viewerOf(request, reply),
        account,
        fault: null,
        typed: freshIssueForm,
      }),
    )
  })

  pages.post<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const viewer = viewerOf(request, reply)
    const form = formOf(request.body)
    const once = form.text('once')
    const outcome = await attempt(async () => {
      const asked = parseIssue(form)
      if (!oncePattern.test(once)) throw new CommandRefused('the form is out of date, send it once more')
      const organizationId =
        form.text('test') === 'on'
          ? await openTestOrganization(context.foundation, {
              organizationId: account.organization_id,
              ...provedOperator(viewer.user),
            })
          : account.organization_id
      return issueKey(context.foundation, {
        organizationId,
        ...asked,
        ...provedOperator(viewer.user),
        byPartner: viewer.role === 'partner',
        once: `${viewer.user} ${once}`,
      }).catch((error: unknown) => {
        if (error instanceof KeyIssuedBefore) return error
        throw error
      })
    })
    if ('fault' in outcome)
      return sendPage(reply.code(422), issueKeyPage({ viewer, account, fault: outcome.fault, typed: form }))
    await shownSoon(context, ['api_keys', 'accounts'])
    const { done } = outcome
    if (done instanceof KeyIssuedBefore)
      return sendPage(reply.code(409), keyIssuedBeforePage({ viewer, account, keyId: done.keyId }))
    return sendPage(
      reply,
      keyShownPage({ viewer, ...shownKey(context, request, done), account, replaces: null }),
    )
  })
}

/** A key with lines to try it, and its organization: test keys belong to a separate organization. */
const shownKey = (
  { apiUrl }: Dashboard,
  { protocol, host }: FastifyRequest,
  { keyId, apiKey, issued }: IssuedKey,
): Pick<Parameters<typeof keyShownPage>[0], 'keyId' | 'apiKey' | 'owner' | 'calls' | 'apiKnown'> => ({
  keyId,
  apiKey,
  owner: { organization_id: issued.organization_id, name: issued.organization_name },
  apiKnown: apiUrl !== null,
  calls: firstCalls({
    apiUrl: apiUrl ?? 'https://api.example.com',
    dashboardUrl: `${protocol}://${host}`,
    apiKey,
    permissions: issued.permissions,
  }),
})

const graceDefault = '24h'

const rotateRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const path = '/organizations/:organization/keys/:key/rotate'

  pages.get<KeyParams>(path, async (request, reply) => {
    const found = await keyAt(context, request.params)
    return sendPage(
      reply,
      rotateKeyPage({ viewer: viewerOf(request, reply), ...found, fault: null, grace: graceDefault }),
    )
  })

  pages.post<KeyParams>(path, async (request, reply) => {
    const { account, key } = await keyAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const grace = formOf(request.body).text('grace')
    const outcome = await attemptOnce(context, request, () =>
      rotate(context.foundation, {
        keyId: key.key_id,
        graceMs: graceMsOf(grace),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome)
      return sendPage(reply.code(422), rotateKeyPage({ viewer, account, key, fault: outcome.fault, grace }))
    await shownSoon(context, ['api_keys', 'accounts'])
    const replaces = { keyId: key.key_id, until: new Date(outcome.done.graceUntil) }
    return sendPage(
      reply,
      keyShownPage({ viewer, ...shownKey(context, request, outcome.done), account, replaces }),
    )
  })
}

const revokeRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const path = '/organizations/:organization/keys/:key/revoke'

  pages.get<KeyParams>(path, async (request, reply) => {
    const found = await keyAt(context, request.params)
    return sendPage(
      reply,
      revokeKeyPage({ viewer: viewerOf(request, reply), ...found, fault: null, reason: '' }),
    )
  })

  pages.post<KeyParams>(path, async (request, reply) => {
    const { account, key } = await keyAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const form = formOf(request.body)
    const outcome = await attemptOnce(context, request, async () =>
      revoke(context.foundation, {
        keyId: key.key_id,
        reason: labelOf('reason', form.text('reason')),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome)
      return sendPage(
        reply.code(422),
        revokeKeyPage({ viewer, account, key, fault: outcome.fault, reason: form.text('reason') }),
      )
    await shownSoon(context, ['api_keys', 'accounts'])
    return reply.redirect(`/organizations/${account.organization_id}#key-${key.key_id}`, 303)
  })
}
