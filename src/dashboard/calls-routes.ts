import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { valuesOf } from '../administration/declare.ts'
import { choice, credits, id } from '../administration/fields.ts'
import { rowsOf } from '../concurrency/query.ts'
import { capability } from '../events/capabilities.ts'
import { type CallFilters, organizationOfKey, callsPage as pageOfCalls, placeIn } from './calls.ts'
import { amount, csvOf, sendCsv } from './csv.ts'
import { type Form, formOf } from './form.ts'
import {
  accountAt,
  attempt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import { callFields, callLabels, callOutcomes, callsPage } from './pages/calls.ts'
import { rangeAsked, rangeOrFault } from './pages/ranges.ts'
import { organizationMeant } from './picking.ts'
import { type AccountRow, dayOf, keysOf } from './queries.ts'
import { type Range, rangeQuery } from './ranges.ts'

const pageCalls = 50
const keysMax = 200
/** The maximum number of calls in a file, and of pages that are searched for these calls. */
const csvCallsMax = 50_000
const csvPagesMax = 1_250
const csvPageCalls = 1_000

const words = (name: keyof typeof callLabels) => ({ label: callLabels[name], help: '' })
const filters = z.object({
  key: id(words('key'), keyIdPattern, '0123456789abcdef').optional(),
  capability: choice(words('capability'), capability.options).optional(),
  outcome: choice(words('outcome'), callOutcomes).optional(),
  code: id(words('code'), /^[A-Z]{2,12}_\d{3}$/, 'CREDIT_001').optional(),
  cost: credits(words('cost'), { zero: true }).optional(),
})

/** Throws `InputFault` for an invalid filter. */
const filtersIn = async (
  { foundation: { pool } }: Dashboard,
  form: Form,
  { range, account }: { readonly range: Range; readonly account: AccountRow | null },
): Promise<CallFilters> => {
  const typed = Object.keys(filters.shape).flatMap((name) => {
    const text = form.text(name).trim()
    return text === '' ? [] : [[name, text]]
  })
  const { key: keyId = null, cost = null, ...asked } = valuesOf(filters, Object.fromEntries(typed))
  const named =
    account?.organization_id ??
    (await organizationMeant(pool, 'organization', form.text('organization').trim()))
  const [owner] = keyId !== null && named === null ? await rowsOf(pool, organizationOfKey(keyId)) : []
  return {
    fromMs: range.fromMs,
    untilMs: range.untilMs,
    keyId,
    organizationId: named ?? owner?.organization_id ?? null,
    capability: asked.capability ?? null,
    outcome: asked.outcome ?? null,
    code: asked.code ?? null,
    costMicro: cost,
  }
}

const queryOf = (form: Form, range: Range): Record<string, string> => ({
  ...rangeQuery(range),
  ...Object.fromEntries(
    callFields.map((name) => [name, form.text(name)]).filter(([, value]) => value !== ''),
  ),
})

type Asking = {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly account: AccountRow | null
}

const showCalls = async (context: Dashboard, { request, reply, account }: Asking): Promise<FastifyReply> => {
  const { pool } = context.foundation
  const typed = formOf(request.query)
  const keys =
    account === null
      ? []
      : await rowsOf(pool, keysOf(account.organization_id, { max: keysMax, nowMs: Date.now() }))
  const live = /^\d{1,4}$/.test(typed.text('live')) ? Number(typed.text('live')) : null
  const view = { viewer: viewerOf(request, reply), account, typed, keys, live }
  const { range, fault } = await rangeOrFault(pool, request.query, account?.organization_id ?? null)
  const outcome =
    fault !== null
      ? { fault }
      : await attempt(async () => {
          const filters = await filtersIn(context, typed, { range, account })
          return pageOfCalls(pool, filters, { before: placeIn(typed.text('before')), max: pageCalls })
        })
  if ('done' in outcome) {
    const shown = { fault: null, range, page: outcome.done, query: queryOf(typed, range) }
    return sendPage(reply, callsPage({ ...view, ...shown }))
  }
  const page = { calls: [], older: null }
  return sendPage(reply.code(422), callsPage({ ...view, fault: outcome.fault, range, page, query: {} }))
}

const csvHead = [
  'time_utc',
  'organization_id',
  'organization',
  'request_id',
  'key_id',
  'capability',
  'outcome',
  'code',
  'calls',
  'credits',
]

async function* csvLines(context: Dashboard, filters: CallFilters): AsyncGenerator<string> {
  yield csvOf(csvHead, [])
  let sent = 0
  let before = null
  for (let pages = 0; pages < csvPagesMax && sent < csvCallsMax; pages++) {
    const { calls, older } = await pageOfCalls(context.foundation.pool, filters, {
      before,
      max: csvPageCalls,
    })
    sent += calls.length
    yield csvOf(
      csvHead,
      calls.map((call) => [
        call.effective_at.toISOString(),
        call.organization_id,
        call.organization_name ?? '',
        call.request_id ?? '',
        call.key_id ?? '',
        call.capability ?? 'any',
        call.outcome ?? '',
        call.code ?? '',
        { number: call.calls ?? '1' },
        amount(-BigInt(call.amount_micro)),
      ]),
    ).slice(csvOf(csvHead, []).length)
    if (older === null) return
    before = older
  }
}

const sendCalls = async (context: Dashboard, { request, reply, account }: Asking): Promise<FastifyReply> => {
  const form = formOf(request.query)
  const range = await rangeAsked(context.foundation.pool, form, account?.organization_id ?? null)
  const filters = await filtersIn(context, form, { range, account })
  const name = `calls-${account?.organization_id ?? 'all'}-${dayOf(range.fromMs)}`
  return sendCsv(reply, name, Readable.from(csvLines(context, filters)))
}

export const callsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/calls', (request, reply) => showCalls(context, { request, reply, account: null }))
  pages.get('/calls.csv', (request, reply) => sendCalls(context, { request, reply, account: null }))
  pages.get<OrganizationParams>('/organizations/:organization/calls', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    return showCalls(context, { request, reply, account })
  })
  pages.get<OrganizationParams>('/organizations/:organization/calls.csv', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    return sendCalls(context, { request, reply, account })
  })
}
