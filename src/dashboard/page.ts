import { strict as assert } from 'node:assert'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { ulid } from 'ulid'
import type { SignInEvents } from '../administration/users/sign-ins.ts'
import type { UserDirectory } from '../administration/users/user-directory.ts'
import type { WebhookOutside } from '../administration/webhooks/webhook-request.ts'
import type { PixelControls } from '../capabilities/index.ts'
import { rowsOf } from '../concurrency/query.ts'
import type { Config } from '../config.ts'
import type { UserRole } from '../events/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { Health } from '../metrics/health.ts'
import type { Devices } from './devices.ts'
import { type Form, faultOf, formOf } from './form.ts'
import type { HalfSignedIn } from './half-signed-in.ts'
import { documentOf, type Html, partOf } from './html.ts'
import type { IdentityProvider } from './identity-provider.ts'
import type { Latency } from './latency.ts'
import { takeForm } from './once.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { type AccountRow, accountOf, type KeyRow, keyOf } from './queries.ts'
import type { RequiredFactor } from './required-factor.ts'
import { formOwner } from './session.ts'
import type { CodeAttempts, SignIn } from './sign-in.ts'
import { timesOf } from './times.ts'
import type { Asker, Works } from './works.ts'

/** The common parts of the routes of all pages. */

export type Dashboard = {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly settings: Config
  readonly signIn: SignIn
  readonly codeAttempts: CodeAttempts
  readonly devices: Devices
  readonly halfSignedIn: HalfSignedIn
  readonly signIns: SignInEvents
  readonly users: UserDirectory
  /** The users who must set up a second factor before they can open other pages. */
  readonly requiredFactor: RequiredFactor
  /** Whether changes that one person proposes must be approved by another. */
  readonly twoPerson: boolean
  /** The URL of the API, for examples to copy; null if it is not known in this process. */
  readonly apiUrl: string | null
  /** A session ends after this many minutes without a request from its user. */
  readonly idleMinutes: number
  readonly works: Works
  /** Null if people sign in only with passwords. */
  readonly provider: IdentityProvider | null
  /** The dashboard's public address, without a trailing slash; null if the address of the request is used instead. */
  readonly publicUrl: string | null
  /** The lag of the projections behind the event log, and the results of this process's checks. */
  readonly health: Pick<Health, 'projectionLags' | 'findings'>
  /** Null if this process has not answered a call yet. */
  readonly latency: () => Promise<Latency | null>
  /** The lag of rows, in milliseconds, above which pages show a notice. */
  readonly lateAfterMs: number
  readonly outside: WebhookOutside
  readonly pixel: PixelControls
}

/** Thrown if the page, organization or key does not exist. */
export class PageMissing extends Error {
  override name = 'PageMissing'
}

/** Sends a page, which must not be cached, because its content depends on the user and the time. */
export const sendPage = (reply: FastifyReply, page: Html): FastifyReply =>
  reply.type('text/html; charset=utf-8').header('cache-control', 'no-store').send(documentOf(page))

/** Sends a part of a page, for its scripts. */
export const sendPart = (reply: FastifyReply, part: Html): FastifyReply =>
  reply.type('text/html; charset=utf-8').header('cache-control', 'no-store').send(partOf(part))

export const csrfOf = (request: FastifyRequest, reply: FastifyReply): string =>
  reply.generateCsrf({ userInfo: formOwner(request) })

const roleOf = ({ standing }: FastifyRequest): UserRole => {
  assert(standing !== null)
  return standing.role
}

/** The user and the organization of the request, for shared limits. */
export const askerOf = ({ standing }: FastifyRequest): Asker => {
  assert(standing !== null)
  return { user: standing.user, organizationId: standing.organizationId }
}

const userOf = ({ session }: FastifyRequest): string => {
  assert(session.user !== undefined)
  return session.user
}

export const viewerOf = (request: FastifyRequest, reply: FastifyReply): Viewer => ({
  user: userOf(request),
  role: roleOf(request),
  csrf: csrfOf(request, reply),
  once: ulid(),
  rows: request.rows,
  docsUrl: request.docsUrl,
  times: timesOf(request),
})

/** Does the work of a form. Returns faults that the person can correct, and throws all other errors. */
export const attempt = async <Done>(
  work: () => Promise<Done>,
): Promise<{ done: Done } | { fault: FormFault }> => {
  try {
    return { done: await work() }
  } catch (error) {
    const fault = faultOf(error)
    if (fault === null) throw error
    return { fault }
  }
}

/** Like `attempt`, for a form that is accepted once. Throws `FormSentBefore` if it was already accepted. */
export const attemptOnce = <Done>(
  { foundation: { pool } }: Dashboard,
  request: FastifyRequest,
  work: (form: Form) => Promise<Done>,
): Promise<{ done: Done } | { fault: FormFault }> =>
  attempt(async () => {
    const form = formOf(request.body)
    const [path = ''] = request.url.split('?')
    await takeForm(pool, { user: userOf(request), path, once: form.text('once') }, Date.now())
    return work(form)
  })

export type OrganizationParams = { Params: { organization: string } }
export type CallParams = { Params: { organization: string; request: string } }
export type KeyParams = { Params: { organization: string; key: string } }

export const organizationPattern = /^org_(test_)?[0-9A-HJKMNP-TV-Z]{26}$/
export const keyIdPattern = /^[0-9A-Za-z]{16}$/

export const accountAt = async (context: Dashboard, organizationId: string): Promise<AccountRow> => {
  // A string that cannot be an id is not queried, because PostgreSQL refuses text with U+0000.
  if (!organizationPattern.test(organizationId)) throw new PageMissing()
  const [account] = await rowsOf(context.foundation.pool, accountOf(organizationId, Date.now()))
  if (account === undefined) throw new PageMissing()
  return account
}

export const keyAt = async (
  context: Dashboard,
  params: KeyParams['Params'],
): Promise<{ account: AccountRow; key: KeyRow }> => {
  const account = await accountAt(context, params.organization)
  if (!keyIdPattern.test(params.key)) throw new PageMissing()
  const [key] = await rowsOf(context.foundation.pool, keyOf(params.organization, params.key, Date.now()))
  if (key === undefined) throw new PageMissing()
  return { account, key }
}
