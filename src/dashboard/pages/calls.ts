import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { valuesOf } from '../../administration/declare.ts'
import * as field from '../../administration/fields.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { capability } from '../../events/capabilities.ts'
import {
  type CallFilters,
  type CallRow,
  type CallsPage,
  organizationOfKey,
  placeIn,
  placeText,
  readCalls,
} from '../calls.ts'
import { amount, csvOf, sendCsv } from '../csv.ts'
import { type Form, formOf } from '../form.ts'
import { count, credits, instant, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { refreshing } from '../idle.ts'
import {
  accountAt,
  attempt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from '../page.ts'
import { organizationMeant } from '../picking.ts'
import { type AccountRow, dayOf, keysOf } from '../queries.ts'
import { type Range, rangeQuery } from '../ranges.ts'
import { suggesting, suggestions } from './choices.ts'
import {
  type Column,
  described,
  type FormFault,
  faultNotice,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'
import { rangeAsked, rangeFields, rangeOrFault } from './ranges.ts'

/** `errors`: every call that was refused or failed. */
const callOutcomes = ['answered', 'refused', 'failed', 'errors'] as const
const callLabels = {
  organization: 'Organization',
  key: 'Key',
  capability: 'Capability',
  outcome: 'Outcome',
  code: 'Error code',
  cost: 'Minimum credits',
} as const
type CallField = keyof typeof callLabels
const callFields = Object.keys(callLabels) as readonly CallField[]
type CallsView = {
  readonly viewer: Viewer
  /** Null for all organizations. */
  readonly account: AccountRow | null
  readonly typed: Form
  readonly range: Range
  readonly fault: FormFault | null
  readonly keys: readonly { readonly key_id: string; readonly name: string }[]
  readonly page: CallsPage
  /** The filters and the range, for the links of the page. */
  readonly query: Readonly<Record<string, string>>
  /** The number of times that the list has refreshed itself; null if it does not refresh itself. */
  readonly live: number | null
}

/** The list refreshes itself every two seconds, for ten minutes. */
const refreshesMax = 300

const callsPage = (view: CallsView): Html => {
  const { viewer, account } = view
  const title = account === null ? 'Calls' : `Calls of ${account.name}`
  const faulty = callFields.find((name) => name === view.fault?.field)
  return layout({
    title,
    viewer,
    ...(account === null ? { at: '/calls' as const } : {}),
    main: html`${account !== null && organizationHead(viewer, account, '/calls')}
<h1>${title}</h1>
${filterForm(view)}
${faultNotice(view.fault, faulty === undefined ? null : callLabels[faulty])}
${view.fault === null && list(view)}`,
  })
}

const pathOf = ({ account }: Pick<CallsView, 'account'>): string =>
  account === null ? '/calls' : `/organizations/${account.organization_id}/calls`

const hrefOf = (view: CallsView, more: Readonly<Record<string, string>> = {}, suffix = ''): string =>
  `${pathOf(view)}${suffix}?${new URLSearchParams({ ...view.query, ...more }).toString()}`

const choice = (
  { typed, fault }: Pick<CallsView, 'typed' | 'fault'>,
  { name, options }: { name: CallField; options: readonly (readonly [string, string])[] },
): Html => html`<p><label for="${name}">${callLabels[name]}</label>
<select id="${name}" name="${name}"${described(name, fault)}><option value="">any</option>${options.map(
  ([value, shown]) =>
    html`<option value="${value}"${value === typed.text(name) && html` selected`}>${shown}</option>`,
)}</select></p>`

const input = (
  { typed, fault }: Pick<CallsView, 'typed' | 'fault'>,
  { name, hint }: { name: CallField; hint: string },
): Html => html`<p><label for="${name}">${callLabels[name]}</label>
<input id="${name}" name="${name}" value="${typed.text(name)}" placeholder="${hint}" maxlength="40" autocomplete="off" spellcheck="false"${described(name, fault)}></p>`

const filterForm = (
  view: CallsView,
): Html => html`<form class="filters" method="get" action="${pathOf(view)}">
${rangeFields(view.range, view.fault)}
${
  view.account === null &&
  html`<p><label for="organization">${callLabels.organization}</label>
<input id="organization" name="organization" value="${view.typed.text('organization')}" placeholder="Name or id" maxlength="200" autocomplete="off" spellcheck="false"${suggesting('organization', { address: '/pick/organizations', within: null })}${described('organization', view.fault)}>
${suggestions('organization')}</p>`
}
${
  view.account === null
    ? input(view, { name: 'key', hint: 'Key id' })
    : choice(view, {
        name: 'key',
        options: view.keys.map(({ key_id, name }) => [key_id, `${name} ${key_id}`]),
      })
}
${choice(view, { name: 'capability', options: capability.options.map((one) => [one, words(one)]) })}
${choice(view, { name: 'outcome', options: callOutcomes.map((one) => [one, one === 'errors' ? 'refused or failed' : one]) })}
${input(view, { name: 'code', hint: 'CREDIT_001' })}
${input(view, { name: 'cost', hint: '0.5' })}
<p class="actions"><button type="submit">Show</button> <a href="${pathOf(view)}">Reset</a></p>
</form>`

const list = (view: CallsView): Html => {
  const { page, live, account } = view
  const refreshes = live !== null && live < refreshesMax
  const polling = html` hx-get="${hrefOf(view, { live: String((live ?? 0) + 1), ...refreshing })}" hx-trigger="every 2s" hx-select="#calls" hx-swap="outerHTML"`
  return html`<section id="calls" aria-label="Calls"${refreshes && polling}>
<div class="heading"><p class="note">${liveNote(view, refreshes)}</p>
<a href="${hrefOf(view, {}, '.csv')}">CSV<span class="unseen"> of these calls</span></a></div>
${
  page.calls.length === 0
    ? html`<p class="empty">${page.older === null ? 'No calls match. Choose a longer range or fewer filters.' : 'No calls match among the newest ones in this range. Older calls may match.'}</p>`
    : table({
        caption: 'Calls, newest first',
        rows: page.calls,
        idOf: ({ ledger, revision }) => `call-${ledger}-${revision}`,
        columns: columnsOf(account),
      })
}
<nav class="pager" aria-label="Pages of calls">${
    page.older !== null && html`<a href="${hrefOf(view, { before: placeText(page.older) })}">Older calls</a>`
  }</nav>
</section>`
}

const liveNote = (view: CallsView, refreshes: boolean): Renderable => {
  if (refreshes) return html`Live: refreshes every two seconds. <a id="live" href="${hrefOf(view)}">Pause</a>`
  const paused = view.live !== null && 'Paused after ten minutes. '
  return html`${paused}<a id="live" href="${hrefOf(view, { live: '0' })}">Live</a>`
}

const columnsOf = (account: AccountRow | null): readonly Column<CallRow>[] => [
  {
    head: 'Time (UTC)',
    kind: 'name',
    cell: (call) =>
      call.kind === 'call' && call.request_id !== null
        ? html`<a href="/organizations/${call.organization_id}/calls/${call.request_id}">${instant(call.effective_at, { milliseconds: true })}</a>`
        : instant(call.effective_at, { milliseconds: true }),
  },
  ...(account === null
    ? [
        {
          head: 'Organization',
          cell: ({ organization_id: id, organization_name: name }: CallRow) =>
            html`<a href="/organizations/${id}/calls">${name ?? id}</a>`,
        },
      ]
    : []),
  {
    head: 'Key',
    cell: ({ organization_id: id, key_id, key_name }) =>
      key_id !== null && html`<a href="/organizations/${id}/keys/${key_id}">${key_name ?? key_id}</a>`,
  },
  { head: 'Capability', cell: ({ capability: called }) => called !== null && words(called) },
  {
    head: 'Outcome',
    cell: ({ outcome, code, calls }) => [
      calls !== null && calls !== '1' && `${count(calls)} calls `,
      outcome,
      code !== null && html` <span class="code">${code}</span>`,
    ],
  },
  { head: 'Charged', kind: 'number', cell: ({ amount_micro }) => credits(String(-BigInt(amount_micro))) },
]

const pageCalls = 50
const keysMax = 200
/** The maximum number of calls in a file, and of pages that are searched for these calls. */
const csvCallsMax = 50_000
const csvPagesMax = 1_250
const csvPageCalls = 1_000

const wordsOf = (name: keyof typeof callLabels) => ({ label: callLabels[name], help: '' })
const filters = z.object({
  key: field.id(wordsOf('key'), keyIdPattern, '0123456789abcdef').optional(),
  capability: field.choice(wordsOf('capability'), capability.options).optional(),
  outcome: field.choice(wordsOf('outcome'), callOutcomes).optional(),
  code: field.id(wordsOf('code'), /^[A-Z]{2,12}_\d{3}$/, 'CREDIT_001').optional(),
  cost: field.credits(wordsOf('cost'), { zero: true }).optional(),
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
          return readCalls(pool, filters, { before: placeIn(typed.text('before')), max: pageCalls })
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
    const { calls, older } = await readCalls(context.foundation.pool, filters, {
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
