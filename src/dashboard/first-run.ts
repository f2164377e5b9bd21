import type { FastifyRequest } from 'fastify'
import { reasonOf } from '../administration/checks/check.ts'
import { type Demo, readDemo } from '../administration/seed.ts'
import { rowsOf } from '../concurrency/query.ts'
import { permission } from '../events/capabilities.ts'
import { curlOf, firstRequest } from './first-call.ts'
import { isFromLocalDemo } from './given-password.ts'
import { anyOtherKey, newestCall } from './overview-queries.ts'
import type { Dashboard } from './page.ts'

/** The first steps of a new installation. Read models show the completed steps. */

export type FirstRun = {
  readonly curl: string | null
  /** Whether the local demo's key is known, so that a button can make the call. */
  readonly sends: boolean
  /** The newest call; null if there is none yet. */
  readonly call: { readonly organization_id: string; readonly request_id: string } | null
  readonly ownKey: boolean
  /** The organization whose key is issued next, if it is known. */
  readonly organizationId: string | null
}

const demoOf = ({ settings }: Dashboard): Promise<Demo | null> =>
  settings.DATABASE_URL === undefined ? readDemo(settings.DATA_DIR) : Promise.resolve(null)

/** The state of the first steps; null once all of them are done. */
export const firstRunOf = async (context: Dashboard, request: FastifyRequest): Promise<FirstRun | null> => {
  const { pool } = context.foundation
  const demo = await demoOf(context)
  const [[call = null], [other]] = await Promise.all([
    rowsOf(pool, newestCall()),
    rowsOf(pool, anyOtherKey(demo?.api_key_id ?? null)),
  ])
  const ownKey = other?.any === true
  if (call !== null && ownKey) return null
  const known = demo !== null && isFromLocalDemo(context.settings, request) ? demo : null
  const hosts = {
    apiUrl: known?.api_url ?? context.apiUrl ?? 'https://api.example.com',
    dashboardUrl: `${request.protocol}://${request.host}`,
  }
  const first = firstRequest(hosts, permission.options)
  return {
    curl: first === undefined ? null : curlOf(first, `'x-api-key: ${known?.api_key ?? 'YOUR_KEY'}'`),
    sends: known !== null,
    call,
    ownKey,
    organizationId: demo?.organization_id ?? null,
  }
}

export type FirstAnswer =
  | {
      readonly kind: 'answered'
      readonly status: number
      readonly cost: string | null
      readonly body: string
    }
  | { readonly kind: 'failed'; readonly why: string }

/** Longer than 12 seconds, within which the API answers every call. */
const answerMaxMs = 15_000

/** Makes the first call with the demo's key. Another form with the same `once` repeats the same call. Returns null outside the local demo. */
export const makeFirstCall = async (
  context: Dashboard,
  request: FastifyRequest,
  once: string,
): Promise<FirstAnswer | null> => {
  const demo = isFromLocalDemo(context.settings, request) ? await demoOf(context) : null
  const first =
    demo && firstRequest({ apiUrl: demo.api_url, dashboardUrl: demo.dashboard_url }, permission.options)
  if (demo === null || !first) return null
  const { url, body } = first
  try {
    const answer = await fetch(url, {
      method: body === null ? 'GET' : 'POST',
      headers: {
        'x-api-key': demo.api_key,
        'idempotency-key': once,
        ...(body === null ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === null ? {} : { body: JSON.stringify(body) }),
      redirect: 'error',
      signal: AbortSignal.timeout(answerMaxMs),
    })
    const cost = answer.headers.get('credits-charged')
    return {
      kind: 'answered',
      status: answer.status,
      cost,
      body: JSON.stringify(await answer.json(), null, 2),
    }
  } catch (error) {
    return { kind: 'failed', why: `The API at ${demo.api_url} did not answer: ${reasonOf(error)}.` }
  }
}
