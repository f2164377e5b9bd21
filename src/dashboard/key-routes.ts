import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { ulid } from 'ulid'
import { issueKey, KeyIssuedBefore, revoke, rotate } from '../administration/api-keys.ts'
import { labelOf } from '../administration/input.ts'
import { graceMsOf } from '../administration/key-request.ts'
import { provedOperator } from '../administration/operator.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { readCheckpoints } from '../projector/checkpoints.ts'
import { faultOf, formOf, freshIssueForm, parseIssue } from './form.ts'
import {
  accountAt,
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
import type { FormFault } from './pages/layout.ts'

/** The forms that issue, rotate and revoke a key. Every change is a POST that names who did it. */

/** Does what a form asks for, or says what is wrong with the form; anything else that fails is not the form's fault. */
const attempt = async <Done>(work: () => Promise<Done>): Promise<{ done: Done } | { fault: FormFault }> => {
  try {
    return { done: await work() }
  } catch (error) {
    const fault = faultOf(error)
    if (fault === null) throw error
    return { fault }
  }
}

const oncePattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** Three forms, each a GET that shows it and a POST that does what it says. */
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
        once: ulid(),
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
      return issueKey(context.foundation, {
        organizationId: account.organization_id,
        ...asked,
        ...provedOperator(viewer.user),
        once: `${viewer.user} ${once}`,
      }).catch((error: unknown) => {
        if (error instanceof KeyIssuedBefore) return error
        throw error
      })
    })
    if ('fault' in outcome)
      return sendPage(
        reply.code(422),
        issueKeyPage({ viewer, account, fault: outcome.fault, typed: form, once: ulid() }),
      )
    await shownSoon(context)
    const { done } = outcome
    if (done instanceof KeyIssuedBefore)
      return sendPage(reply.code(409), keyIssuedBeforePage({ viewer, account, keyId: done.keyId }))
    const { keyId, apiKey } = done
    return sendPage(reply, keyShownPage({ viewer, account, keyId, apiKey, replaces: null }))
  })
}

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
    const outcome = await attempt(() =>
      rotate(context.foundation, {
        keyId: key.key_id,
        graceMs: graceMsOf(grace),
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome)
      return sendPage(reply.code(422), rotateKeyPage({ viewer, account, key, fault: outcome.fault, grace }))
    const { keyId, apiKey, graceUntil } = outcome.done
    await shownSoon(context)
    const replaces = { keyId: key.key_id, until: new Date(graceUntil) }
    return sendPage(reply, keyShownPage({ viewer, account, keyId, apiKey, replaces }))
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
    const outcome = await attempt(async () =>
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
    await shownSoon(context)
    return reply.redirect(`/organizations/${account.organization_id}#key-${key.key_id}`, 303)
  })
}

const shownSoonMs = 1_000
const shownSoonPollMs = 25

/**
 * Waits until the keys' rows show what was just done, so that the next page does. Gives up after a second: the change
 * is made whether its row is there or not, and the overview says how far behind the rows are.
 */
const shownSoon = async ({ foundation: { eventLog, pool } }: Dashboard): Promise<void> => {
  const target = await eventLog.head()
  const end = performance.now() + shownSoonMs
  while (performance.now() < end) {
    const keys = (await readCheckpoints(pool)).find(({ name }) => name === 'api_keys')
    if (keys === undefined || keys.position >= target) return
    await sleep(shownSoonPollMs)
  }
}
