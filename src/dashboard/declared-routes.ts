import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Context } from '../administration/declare.ts'
import { provedOperator } from '../administration/operator.ts'
import { csvOf } from './csv.ts'
import { givenIn, type Place, places } from './declared.ts'
import { firstCalls } from './first-call.ts'
import { type Form, formOf } from './form.ts'
import type { Html } from './html.ts'
import { takeForm } from './once.ts'
import { accountAt, attempt, type Dashboard, sendPage, viewerOf } from './page.ts'
import {
  answerPage,
  type DeclaredView,
  type FirstCallsView,
  formPage,
  listPage,
  nothingPage,
  planPage,
  type Row,
} from './pages/declared.ts'
import type { Viewer } from './pages/layout.ts'
import { shownSoon } from './shown-soon.ts'
import { soonOr, soonOrWaiting } from './work-routes.ts'

/** The forms of all commands and the tables of all queries: a form, its plan, and the change, which a form makes once. */

type PlaceParams = { Params: { organization?: string } }

export const declaredRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  for (const place of places)
    if (place.declared.changes === 'nothing') queryRoutes(pages, context, place)
    else commandRoutes(pages, context, place)
}

const commandRoutes = (pages: FastifyInstance, context: Dashboard, place: Place): void => {
  const { declared, path } = place

  pages.get<PlaceParams>(path, async (request, reply) => {
    const view = await viewAt(context, place, request, reply)
    const fresh = Object.fromEntries(declared.fields.map(({ flag, byDefault }) => [flag, byDefault]))
    const typed = formOf({ ...fresh, ...(request.query as object) })
    return sendPage(reply, formPage({ ...view, typed, fault: null }))
  })

  pages.post<PlaceParams>(path, async (request, reply) => {
    const view = await viewAt(context, place, request, reply)
    const form = formOf(request.body)
    const outcome = await attempt(() =>
      soonOrWaiting(context, reply, {
        key: `${request.url} ${form.text('once')}`,
        title: declared.summary,
        run: (progress) => asked(context, view, { form, request, progress }),
      }),
    )
    if ('done' in outcome)
      return 'sent' in outcome.done ? outcome.done.sent : sendPage(reply, outcome.done.page(view.viewer))
    return sendPage(reply.code(422), formPage({ ...view, typed: form, fault: outcome.fault }))
  })
}

/** The next page after a sent form. A command that asks nowhere makes its change at once. */
const asked = async (
  context: Dashboard,
  view: DeclaredView,
  { form, request, progress }: { form: Form; request: FastifyRequest; progress: (text: string) => void },
): Promise<{ readonly page: (viewer: Viewer) => Html }> => {
  const { place, account, viewer } = view
  const { read, changes } = place.declared
  const { plan, run } = read(givenIn(place, form, account?.organization_id ?? null))
  const own = { ...contextOf(context, view), progress }
  if (form.text('confirmed') !== 'yes') {
    const planned = await plan(own)
    if (planned.nothing === true) return { page: (viewer) => nothingPage({ ...view, viewer, plan: planned }) }
    const asks = planned.asks ?? (changes === 'nothing' ? 'never' : changes.asks)
    if (asks !== 'never')
      return { page: (viewer) => planPage({ ...view, viewer, plan: planned, typed: form }) }
  }
  const [path = ''] = request.url.split('?')
  await takeForm(context.foundation.pool, { user: viewer.user, path, once: form.text('once') }, Date.now())
  const answer = await run(own)
  await shownSoon(context)
  const calls = callsWith(context, request, answer.json)
  return { page: (viewer) => answerPage({ ...view, viewer, answer, calls }) }
}

const issuedKey = z.object({ api_key: z.string(), permissions: z.array(z.string()) })

/** Lines that try the API key of an answer; null: it has none. */
const callsWith = (
  { apiUrl }: Dashboard,
  { protocol, host }: FastifyRequest,
  json: object,
): FirstCallsView | null => {
  const { data } = issuedKey.safeParse(json)
  if (data === undefined) return null
  const { api_key: apiKey, permissions } = data
  const dashboardUrl = `${protocol}://${host}`
  return {
    apiKnown: apiUrl !== null,
    calls: firstCalls({ apiUrl: apiUrl ?? 'https://api.example.com', dashboardUrl, apiKey, permissions }),
  }
}

const queryRoutes = (pages: FastifyInstance, context: Dashboard, place: Place): void => {
  const answerTo = async (request: FastifyRequest<PlaceParams>, reply: FastifyReply) => {
    const view = await viewAt(context, place, request, reply)
    const typed = formOf(request.query)
    const { read } = place.declared
    const outcome = await attempt(async () =>
      read(givenIn(place, typed, view.account?.organization_id ?? null)).run(contextOf(context, view)),
    )
    return { view: { ...view, typed }, outcome }
  }

  pages.get<PlaceParams>(place.path, async (request, reply) => {
    if (place.declared.long === true) return longQuery(context, place, request, reply)
    const { view, outcome } = await answerTo(request, reply)
    if ('fault' in outcome)
      return sendPage(reply.code(422), listPage({ ...view, fault: outcome.fault, answer: null }))
    return sendPage(reply, listPage({ ...view, fault: null, answer: outcome.done }))
  })

  const { columns, name } = place.declared
  if (columns === undefined) return
  pages.get<PlaceParams>(`${place.path}.csv`, async (request, reply) => {
    const { view, outcome } = await answerTo(request, reply)
    if ('fault' in outcome)
      return sendPage(reply.code(422), listPage({ ...view, fault: outcome.fault, answer: null }))
    const rows = outcome.done.json as readonly Row[]
    return reply
      .type('text/csv; charset=utf-8')
      .header('content-disposition', `attachment; filename="${name.replace(' ', '-')}.csv"`)
      .header('cache-control', 'no-store')
      .send(
        csvOf(
          columns.map((column) => column.name),
          rows.map((row) => columns.map((column) => csvCell(row[column.name], column.kind))),
        ),
      )
  })
}

/** It begins when a person asks for it, and its page waits for it. */
const longQuery = async (
  context: Dashboard,
  place: Place,
  request: FastifyRequest<PlaceParams>,
  reply: FastifyReply,
): Promise<FastifyReply> => {
  const view = { ...(await viewAt(context, place, request, reply)), typed: formOf(request.query) }
  if (view.typed.text('begin') !== 'yes')
    return sendPage(reply, listPage({ ...view, fault: null, answer: null }))
  const outcome = await attempt(() =>
    soonOr(context, {
      request,
      reply,
      key: request.url,
      title: place.declared.summary,
      run: (progress) =>
        place.declared
          .read(givenIn(place, view.typed, view.account?.organization_id ?? null))
          .run({ ...contextOf(context, view), progress }),
    }),
  )
  if ('fault' in outcome)
    return sendPage(reply.code(422), listPage({ ...view, fault: outcome.fault, answer: null }))
  if ('sent' in outcome.done) return outcome.done.sent
  return sendPage(reply, listPage({ ...view, fault: null, answer: outcome.done.result }))
}

const csvCell = (value: unknown, kind: string | undefined) => {
  if (value === null || value === undefined) return ''
  if (Array.isArray(value)) return value.join(' ')
  return kind === 'credits' || kind === 'number' ? { number: String(value) } : String(value)
}

/** Throws `PageMissing` for an organization that does not exist. */
const viewAt = async (
  context: Dashboard,
  place: Place,
  request: FastifyRequest<PlaceParams>,
  reply: FastifyReply,
): Promise<DeclaredView> => ({
  place,
  viewer: viewerOf(request, reply),
  account: place.organization ? await accountAt(context, request.params.organization ?? '') : null,
})

const contextOf = (
  { foundation, logger, twoPerson, outside }: Dashboard,
  { viewer }: DeclaredView,
): Context => ({
  ...{ foundation, logger, twoPerson },
  operator: { ...provedOperator(viewer.user), role: viewer.role },
  outside: () => outside,
  progress: () => undefined,
  interrupted: new AbortController().signal,
})
