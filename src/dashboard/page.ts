import { strict as assert } from 'node:assert'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Logger } from 'pino'
import { ulid } from 'ulid'
import type { FirstStep } from '../administration/first-steps.ts'
import type { SignInEvents } from '../administration/sign-ins.ts'
import type { UserDirectory } from '../administration/user-directory.ts'
import type { FoundData } from '../call/data-source.ts'
import type { PixelControls } from '../capabilities/index.ts'
import type { Outside } from '../egress/outside.ts'
import type { UserRole } from '../events/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { Health } from '../metrics/health.ts'
import type { Devices } from './devices.ts'
import { type Form, faultOf, formOf } from './form.ts'
import type { HalfSignedIn } from './half-signed-in.ts'
import { documentOf, type Html } from './html.ts'
import type { IdentityProvider } from './identity-provider.ts'
import { takeForm } from './once.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { type AccountRow, accountOf, type KeyRow, keyOf, rowsOf } from './queries.ts'
import type { RequiredFactor } from './required-factor.ts'
import { formOwner } from './session.ts'
import type { CodeAttempts, SignIn } from './sign-in.ts'
import type { Asker, Works } from './works.ts'

/** What every page needs: who looks, at which organization, and how a page is sent. */

export type Dashboard = {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly signIn: SignIn
  readonly codeAttempts: CodeAttempts
  readonly devices: Devices
  readonly halfSignedIn: HalfSignedIn
  readonly signIns: SignInEvents
  readonly users: UserDirectory
  /** Who has to set up a second factor before anything else opens. */
  readonly requiredFactor: RequiredFactor
  /** What one person proposes another one approves. */
  readonly twoPerson: boolean
  /** Where this service answers calls, for lines to copy; null where another one does. */
  readonly apiUrl: string | null
  /** After which a session ends in which its person asks for nothing. */
  readonly idleMinutes: number
  readonly works: Works
  /** People may sign in with it too; null: with a password alone. */
  readonly provider: IdentityProvider | null
  /** Where people open the dashboard, without a slash at its end; null: where the request came to. */
  readonly publicUrl: string | null
  /** How far the projections are behind the event log, and what the checks of this process found. */
  readonly health: Pick<Health, 'projectionLags' | 'findings'>
  /** How long rows may be behind before pages say so; milliseconds. */
  readonly lateAfterMs: number
  /** What to type before anyone can sign in; nothing from the first user on. */
  readonly firstSteps: () => Promise<readonly FirstStep[]>
  /** Where messages to webhooks may be sent, and how. */
  readonly outside: Pick<Outside, 'guard' | 'post' | 'postOwn'>
  readonly pixel: PixelControls
  readonly dataSources: () => Promise<FoundData>
}

/** There is no such page, organization or key. */
export class PageMissing extends Error {
  override name = 'PageMissing'
}

/** Pages are of this moment and of this person. */
export const sendPage = (reply: FastifyReply, page: Html): FastifyReply =>
  reply.type('text/html; charset=utf-8').header('cache-control', 'no-store').send(documentOf(page))

export const csrfOf = (request: FastifyRequest, reply: FastifyReply): string =>
  reply.generateCsrf({ userInfo: formOwner(request) })

const roleOf = ({ standing }: FastifyRequest): UserRole => {
  assert(standing !== null)
  return standing.role
}

/** For places that are shared. */
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
})

/** Does what a form asks for, or says what is wrong with the form; anything else that fails is not the form's fault. */
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

/** The same, for a form that is taken once. Throws `FormSentBefore` where it was. */
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
  // What no id looks like is not asked for: PostgreSQL refuses a text with U+0000.
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
