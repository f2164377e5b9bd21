import { strict as assert } from 'node:assert'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { ulid } from 'ulid'
import { callerAddress } from '../guard/caller-address.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { issueKey, KeyIssuedBefore, revoke, rotate } from '../ops/api-keys.ts'
import { labelOf } from '../ops/command.ts'
import type { Foundation } from '../ops/foundation.ts'
import { graceMsOf } from '../ops/key-request.ts'
import {
  readCheckpoints,
  readHaltedStreams,
  strayCheckpoints,
  strayMessage,
} from '../projector/checkpoints.ts'
import { faultOf, formOf, freshIssueFields, issueFieldsOf, parseIssue } from './form.ts'
import { documentOf, type Html } from './html.ts'
import {
  issueKeyPage,
  keyIssuedBeforePage,
  keyShownPage,
  revokeKeyPage,
  rotateKeyPage,
} from './pages/keys.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { organizationPage, type StatementView } from './pages/organization.ts'
import { overviewPage } from './pages/overview.ts'
import { signInPage } from './pages/sign-in.ts'
import {
  type AccountRow,
  accountOf,
  type KeyRow,
  keyOf,
  keysOf,
  lotsOf,
  organizations,
  parkedEvents,
  rowsOf,
} from './queries.ts'
import { deviceCookie, deviceCookieOptions, formOwner, sessionCookie } from './session.ts'
import type { SignIn } from './sign-in.ts'
import { linesOfCall, type StatementPlace, statementPage } from './statement.ts'

/** Every page and form there is. Reading is GET and changes nothing; every change is a POST that names who did it. */

export type DashboardRoom = {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly signIn: SignIn
}

/** There is no such page, organization or key. */
export class PageMissing extends Error {
  override name = 'PageMissing'
}

const organizationsMax = 100
const lotsMax = 100
const keysMax = 200

/** Pages are of this moment and of this person. */
export const sendPage = (reply: FastifyReply, page: Html): FastifyReply =>
  reply.type('text/html; charset=utf-8').header('cache-control', 'no-store').send(documentOf(page))

/** The only places a sign-in leads to: an address from elsewhere must not send people elsewhere. */
const nextOf = (text: string): string =>
  /^\/organizations\/org_[0-9A-Z]{26}(\?request_id=[0-9A-Z]{26})?$/.test(text) ? text : '/'

const csrfOf = (request: FastifyRequest, reply: FastifyReply): string =>
  reply.generateCsrf({ userInfo: formOwner(request) })

/** Signing in and out: for whoever comes. */
export const visitorRoutes = (pages: FastifyInstance, { signIn, logger }: DashboardRoom): void => {
  pages.get('/login', (request, reply) => {
    const next = nextOf(formOf(request.query).text('next'))
    if (request.session.user !== undefined) return reply.redirect(next, 303)
    return sendPage(reply, signInPage({ csrf: csrfOf(request, reply), next, name: '', fault: null }))
  })

  pages.post('/login', async (request, reply) => {
    const form = formOf(request.body)
    const [name, next] = [form.text('name').trim(), nextOf(form.text('next'))]
    const address = callerAddress(request)
    const verdict = await signIn({
      name,
      password: form.text('password'),
      address,
      device: request.cookies[deviceCookie],
    })
    if (verdict.kind === 'signed_in') {
      await request.session.regenerate()
      request.session.user = verdict.user
      reply.setCookie(deviceCookie, verdict.device, deviceCookieOptions)
      logger.info({ user: verdict.user, address }, 'dashboard: signed in')
      return reply.redirect(next, 303)
    }
    // The name is not logged: people type passwords into the wrong field.
    logger.warn({ address, reason: verdict.kind }, 'dashboard: sign-in refused')
    const message =
      verdict.kind === 'limited'
        ? `Too many attempts. Try again in ${verdict.retryAfterSeconds} seconds.`
        : 'The user name or the password is wrong.'
    if (verdict.kind === 'limited') reply.header('retry-after', verdict.retryAfterSeconds)
    reply.code(verdict.kind === 'limited' ? 429 : 401)
    return sendPage(
      reply,
      signInPage({ csrf: csrfOf(request, reply), next, name, fault: { field: null, message } }),
    )
  })

  pages.post('/logout', async (request, reply) => {
    await request.session.destroy()
    return reply.clearCookie(sessionCookie, { path: '/' }).redirect('/login', 303)
  })
}

/** Everything else: for people who are signed in. */
export const pageRoutes = (pages: FastifyInstance, room: DashboardRoom): void => {
  pages.addHook('onRequest', (request, reply, done) => {
    if (request.session.user !== undefined) return done()
    const next = nextOf(request.url)
    reply.redirect(next === '/' ? '/login' : `/login?next=${encodeURIComponent(next)}`, 303)
  })
  overviewRoute(pages, room)
  organizationRoute(pages, room)
  issueRoutes(pages, room)
  rotateRoutes(pages, room)
  revokeRoutes(pages, room)
}

const userOf = ({ session }: FastifyRequest): string => {
  assert(session.user !== undefined)
  return session.user
}

const viewerOf = (request: FastifyRequest, reply: FastifyReply): Viewer => ({
  user: userOf(request),
  csrf: csrfOf(request, reply),
})

const overviewRoute = (pages: FastifyInstance, { foundation: { pool, eventLog } }: DashboardRoom): void => {
  pages.get('/', async (request, reply) => {
    const asked = formOf(request.query).text('after')
    const after = organizationPattern.test(asked) ? asked : ''
    const [found, head, checkpoints, parked, halted] = await Promise.all([
      rowsOf(pool, organizations({ after, max: organizationsMax + 1 })),
      eventLog.head(),
      readCheckpoints(pool),
      rowsOf(pool, parkedEvents()),
      readHaltedStreams(pool),
    ])
    const stray = await strayCheckpoints(eventLog, checkpoints)
    const shown = found.slice(0, organizationsMax)
    const page = overviewPage({
      viewer: viewerOf(request, reply),
      organizations: shown,
      further: after !== '',
      next: found.length > shown.length ? (shown.at(-1)?.organization_id ?? null) : null,
      head,
      projections: checkpoints.map((checkpoint) => ({
        ...checkpoint,
        ...(stray.includes(checkpoint)
          ? { state: 'halted' as const, error: strayMessage([checkpoint]) }
          : {}),
        haltedStreams: halted
          .filter(({ projection }) => projection === checkpoint.name)
          .map(({ stream }) => stream),
        // The head was read beside the checkpoints: one may have passed it.
        behind: head > checkpoint.position ? head - checkpoint.position : 0n,
        parked: parked.find(({ projection }) => projection === checkpoint.name)?.parked ?? 0,
      })),
    })
    return sendPage(reply, page)
  })
}

type OrganizationParams = { Params: { organization: string } }
type KeyParams = { Params: { organization: string; key: string } }

const organizationPattern = /^org_[0-9A-HJKMNP-TV-Z]{26}$/
const keyIdPattern = /^[0-9A-Za-z]{16}$/

const accountAt = async (room: DashboardRoom, organizationId: string): Promise<AccountRow> => {
  // What no id looks like is not asked for: PostgreSQL refuses a text with U+0000.
  if (!organizationPattern.test(organizationId)) throw new PageMissing()
  const [account] = await rowsOf(room.foundation.pool, accountOf(organizationId))
  if (account === undefined) throw new PageMissing()
  return account
}

const keyAt = async (
  room: DashboardRoom,
  params: KeyParams['Params'],
): Promise<{ account: AccountRow; key: KeyRow }> => {
  const account = await accountAt(room, params.organization)
  if (!keyIdPattern.test(params.key)) throw new PageMissing()
  const [key] = await rowsOf(room.foundation.pool, keyOf(params.organization, params.key))
  if (key === undefined) throw new PageMissing()
  return { account, key }
}

const organizationRoute = (pages: FastifyInstance, room: DashboardRoom): void => {
  const { pool } = room.foundation
  pages.get<OrganizationParams>('/organizations/:organization', async (request, reply) => {
    const account = await accountAt(room, request.params.organization)
    const id = account.organization_id
    const [lots, keys, statement] = await Promise.all([
      rowsOf(pool, lotsOf(id, lotsMax + 1)),
      rowsOf(pool, keysOf(id, keysMax + 1)),
      statementOf(room, id, request.query),
    ])
    const page = organizationPage({
      viewer: viewerOf(request, reply),
      account,
      lots: lots.slice(0, lotsMax),
      keys: keys.slice(0, keysMax),
      moreLots: lots.length > lotsMax,
      moreKeys: keys.length > keysMax,
      atMs: Date.now(),
      statement,
    })
    return sendPage(reply, page)
  })
}

const revisionPattern = /^\d{1,15}$/
const requestIdPattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

const statementOf = async (
  { foundation: { pool } }: DashboardRoom,
  organizationId: string,
  query: unknown,
): Promise<StatementView> => {
  const form = formOf(query)
  const requestId = form.text('request_id').trim().toUpperCase()
  if (requestId !== '') {
    if (!requestIdPattern.test(requestId))
      return {
        kind: 'fault',
        requestId: form.text('request_id'),
        fault: {
          field: 'request_id',
          message: 'A request id is 26 letters and digits, such as 01JB2ZQ5V7N3K2M4P6R8T0W1X2.',
        },
      }
    return { kind: 'search', requestId, lines: await linesOfCall(pool, organizationId, requestId) }
  }
  const [before, after] = [form.text('before'), form.text('after')]
  let place: StatementPlace = null
  if (revisionPattern.test(before)) place = { before }
  else if (revisionPattern.test(after)) place = { after }
  return { kind: 'page', page: await statementPage(pool, organizationId, place), newest: place === null }
}

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

const issueRoutes = (pages: FastifyInstance, room: DashboardRoom): void => {
  const path = '/organizations/:organization/keys/new'

  pages.get<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(room, request.params.organization)
    return sendPage(
      reply,
      issueKeyPage({
        viewer: viewerOf(request, reply),
        account,
        fault: null,
        fields: freshIssueFields,
        once: ulid(),
      }),
    )
  })

  pages.post<OrganizationParams>(path, async (request, reply) => {
    const account = await accountAt(room, request.params.organization)
    const viewer = viewerOf(request, reply)
    const form = formOf(request.body)
    const once = form.text('once')
    const outcome = await attempt(async () => {
      const asked = parseIssue(form)
      if (!oncePattern.test(once)) throw new CommandRefused('the form is out of date, send it once more')
      return issueKey(room.foundation, {
        organizationId: account.organization_id,
        ...asked,
        actor: `user:${viewer.user}`,
        once: `${viewer.user} ${once}`,
      }).catch((error: unknown) => {
        if (error instanceof KeyIssuedBefore) return error
        throw error
      })
    })
    if ('fault' in outcome)
      return sendPage(
        reply.code(422),
        issueKeyPage({ viewer, account, fault: outcome.fault, fields: issueFieldsOf(form), once: ulid() }),
      )
    await shownSoon(room)
    const { done } = outcome
    if (done instanceof KeyIssuedBefore)
      return sendPage(reply.code(409), keyIssuedBeforePage({ viewer, account, keyId: done.keyId }))
    const { keyId, apiKey } = done
    return sendPage(reply, keyShownPage({ viewer, account, keyId, apiKey, replaces: null }))
  })
}

const graceDefault = '24h'

const rotateRoutes = (pages: FastifyInstance, room: DashboardRoom): void => {
  const path = '/organizations/:organization/keys/:key/rotate'

  pages.get<KeyParams>(path, async (request, reply) => {
    const found = await keyAt(room, request.params)
    return sendPage(
      reply,
      rotateKeyPage({ viewer: viewerOf(request, reply), ...found, fault: null, grace: graceDefault }),
    )
  })

  pages.post<KeyParams>(path, async (request, reply) => {
    const { account, key } = await keyAt(room, request.params)
    const viewer = viewerOf(request, reply)
    const grace = formOf(request.body).text('grace')
    const outcome = await attempt(() =>
      rotate(room.foundation, {
        keyId: key.key_id,
        graceMs: graceMsOf(grace),
        actor: `user:${viewer.user}`,
      }),
    )
    if ('fault' in outcome)
      return sendPage(reply.code(422), rotateKeyPage({ viewer, account, key, fault: outcome.fault, grace }))
    const { keyId, apiKey, graceUntil } = outcome.done
    await shownSoon(room)
    const replaces = { keyId: key.key_id, until: new Date(graceUntil) }
    return sendPage(reply, keyShownPage({ viewer, account, keyId, apiKey, replaces }))
  })
}

const revokeRoutes = (pages: FastifyInstance, room: DashboardRoom): void => {
  const path = '/organizations/:organization/keys/:key/revoke'

  pages.get<KeyParams>(path, async (request, reply) => {
    const found = await keyAt(room, request.params)
    return sendPage(
      reply,
      revokeKeyPage({ viewer: viewerOf(request, reply), ...found, fault: null, reason: '' }),
    )
  })

  pages.post<KeyParams>(path, async (request, reply) => {
    const { account, key } = await keyAt(room, request.params)
    const viewer = viewerOf(request, reply)
    const form = formOf(request.body)
    const outcome = await attempt(async () =>
      revoke(room.foundation, {
        keyId: key.key_id,
        reason: labelOf('reason', form.text('reason')),
        actor: `user:${viewer.user}`,
      }),
    )
    if ('fault' in outcome)
      return sendPage(
        reply.code(422),
        revokeKeyPage({ viewer, account, key, fault: outcome.fault, reason: form.text('reason') }),
      )
    await shownSoon(room)
    return reply.redirect(`/organizations/${account.organization_id}#key-${key.key_id}`, 303)
  })
}

const shownSoonMs = 1_000
const shownSoonPollMs = 25

/**
 * Waits until the keys' rows show what was just done, so that the next page does. Gives up after a second: the change
 * is made whether its row is there or not, and the overview says how far behind the rows are.
 */
const shownSoon = async ({ foundation: { eventLog, pool } }: DashboardRoom): Promise<void> => {
  const target = await eventLog.head()
  const end = performance.now() + shownSoonMs
  while (performance.now() < end) {
    const keys = (await readCheckpoints(pool)).find(({ name }) => name === 'api_keys')
    if (keys === undefined || keys.position >= target) return
    await sleep(shownSoonPollMs)
  }
}
