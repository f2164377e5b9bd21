import { strict as assert } from 'node:assert'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import { capabilityDataOf } from '../administration/capabilities.ts'
import {
  type Context,
  type Declared,
  type Given,
  isPersonal,
  pageOf,
  partOf,
  type Row,
  rowsDefault,
} from '../administration/declare.ts'
import { answerOf, type LongWork, longWork, requestLongWork } from '../administration/jobs/long-work.ts'
import { type Operator, provedOperator } from '../administration/operator.ts'
import { namesOf } from '../administration/organizations/organizations.ts'
import { mayDo } from '../administration/roles.ts'
import { sendFile } from '../call/streamed.ts'
import { eventIdOf } from '../event-log/stored-event.ts'
import { CommandRefused } from '../ledger/command.ts'
import { csvOf, sendCsv } from './csv.ts'
import { askedFields, givenIn, hasCsv, isSent, type Place, places } from './declared.ts'
import { firstCalls } from './first-call.ts'
import { type Form, faultOf, formOf } from './form.ts'
import { capitalized } from './format.ts'
import type { Html } from './html.ts'
import { takeForm } from './once.ts'
import { accountAt, askerOf, attempt, type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import {
  answerPage,
  type DeclaredView,
  type FirstCallsView,
  type Found,
  formPage,
  listOf,
  listPage,
  nothingPage,
  planPage,
  titleOf,
  workAnswerPage,
  workFailedPage,
  workPage,
} from './pages/declared.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { namesIn, withIds } from './picking.ts'
import type { AccountRow } from './queries.ts'
import { shownSoon } from './shown-soon.ts'
import { createPlaces, type Work } from './works.ts'

/** The pages of all commands and queries. A command's form leads to its plan and then to the change, which is made only once. */

type PlaceParams = { Params: { organization?: string } }

export const declaredRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const inTurn = createTurns()
  for (const place of places) {
    if (place.declared.changes === 'nothing') queryRoutes(pages, context, { place, inTurn })
    else formRoute(pages, context, place)
    if (isSent(place.declared)) sentRoute(pages, context, { place, inTurn })
    if (place.declared.types !== undefined) fileRoute(pages, context, place)
  }
  longWorkRoutes(pages, context)
}

/**
 * The maximum number of concurrent requests of partners in this process. A search reads thousands of events, and a test message waits for its
 * receiver.
 */
const partnersMax = 8

type InTurn = <Done>(request: FastifyRequest, work: () => Promise<Done>) => Promise<Done>

/** Does the work, or throws `CommandRefused` if the partner's organization already has its share of requests in progress. */
const createTurns = (): InTurn => {
  const enter = createPlaces(partnersMax)
  return async (request, work) => {
    const asker = askerOf(request)
    if (asker.organizationId === null) return work()
    const leave = enter(asker)
    if (leave === null)
      throw new CommandRefused(
        'too many requests of your organization are in progress; try again in a moment',
      )
    return work().finally(leave)
  }
}

const formRoute = (pages: FastifyInstance, context: Dashboard, place: Place): void => {
  const { declared, path } = place
  pages.get<PlaceParams>(path, async (request, reply) => {
    const view = await viewAt(context, place, request, reply)
    const filled = declared.fields.filter(({ control }) => control !== 'line')
    const fresh = Object.fromEntries(filled.map(({ flag, byDefault }) => [flag, byDefault]))
    const typed = formOf({ ...fresh, ...(request.query as object) })
    const about = textsIn(place, typed)
    return sendPage(reply, formPage({ ...view, about, typed, fault: null }))
  })
}

const sentRoute = (
  pages: FastifyInstance,
  context: Dashboard,
  { place, inTurn }: { readonly place: Place; readonly inTurn: InTurn },
): void => {
  // A second click gets the answer to the first click, because only that answer contains a new secret.
  const underWay = new Map<string, Promise<Outcome>>()
  pages.post<PlaceParams>(place.path, async (request, reply) => {
    const view = await viewAt(context, place, request, reply)
    const form = formOf(request.body)
    // The key includes the values, because a person can go back and send the same form with other values.
    const key = `${view.viewer.user} ${request.url} ${JSON.stringify(request.body)}`
    const outcome = await attempt(() => {
      const begun =
        underWay.get(key) ?? inTurn(request, () => answered(context, view, { typed: form, request }))
      underWay.set(key, begun)
      return begun.finally(() => underWay.delete(key))
    })
    if ('fault' in outcome) {
      const { fault } = outcome
      const faulty = { ...view, about: textsIn(place, form), typed: form, fault }
      const page =
        place.declared.changes === 'nothing' ? listPage({ ...faulty, ...nothing }) : formPage(faulty)
      return sendPage(reply.code(422), page)
    }
    if ('at' in outcome.done) return reply.redirect(outcome.done.at, 303)
    return sendPage(reply, outcome.done.page(view.viewer))
  })
}

const textsIn = (place: Place, form: Form): Row =>
  Object.fromEntries(askedFields(place).map(({ name, flag }) => [name, form.text(flag)]))

type Outcome = { readonly page: (viewer: Viewer) => Html } | { readonly at: string }

/** Returns the plan of a form, or makes the change if it was confirmed or needs no confirmation. */
const answered = async (
  context: Dashboard,
  view: DeclaredView,
  { typed, request }: { typed: Form; request: FastifyRequest },
): Promise<Outcome> => {
  const { place, account, viewer } = view
  const { declared } = place
  const form = await withIds(context, view, typed)
  const given = givenIn(place, form, account?.organization_id ?? null)
  const { plan, run } = declared.read(given)
  const own = contextOf(context, view, request)
  if (form.text('confirmed') !== 'yes') {
    const planned = await plan(own)
    const about = { ...given, ...planned.json }
    if (planned.nothing === true)
      return { page: (viewer) => nothingPage({ ...view, about, viewer, plan: planned }) }
    const asks = planned.asks ?? (declared.changes === 'nothing' ? 'never' : declared.changes.asks)
    if (asks !== 'never') {
      const names = await namesIn(context, place, form)
      return { page: (viewer) => planPage({ ...view, about, viewer, plan: planned, typed: form, names }) }
    }
  }
  const [path = ''] = request.url.split('?')
  const sent = { user: viewer.user, path, once: form.text('once') }
  if (declared.long !== undefined)
    return { at: await requestedWork(context, sent, { declared, given, operator: own.operator }) }
  await takeForm(context.foundation.pool, sent, Date.now())
  const answer = await run(own)
  await shownSoon(context)
  const calls = callsWith(context, request, answer.json)
  // The page shows the balance after the change.
  const after = account === null ? null : await accountAt(context, account.organization_id)
  const about = { ...given, ...answer.json }
  return { page: (viewer) => answerPage({ ...view, account: after, about, viewer, answer, calls }) }
}

const issuedKey = z.object({ api_key: z.string(), permissions: z.array(z.string()) })

/** Example calls with the API key in an answer; null if the answer has no key. */
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

const nothing: Found = { answer: null, page: null, names: new Map(), further: false }

const queryRoutes = (
  pages: FastifyInstance,
  context: Dashboard,
  { place, inTurn }: { readonly place: Place; readonly inTurn: InTurn },
): void => {
  const { columns, name } = place.declared
  const askedOf = async (request: FastifyRequest<PlaceParams>, reply: FastifyReply) => {
    const view = await viewAt(context, place, request, reply)
    const asTyped = formOf(request.method === 'POST' ? request.body : request.query)
    const named = await attempt(() => withIds(context, view, asTyped))
    const [typed, fault] = 'fault' in named ? [asTyped, named.fault] : [named.done, null]
    const given = givenIn(place, typed, view.account?.organization_id ?? null)
    return { view: { ...view, typed }, given, own: contextOf(context, view, request), fault }
  }
  type Asked = Awaited<ReturnType<typeof askedOf>>
  const refuse = (reply: FastifyReply, view: Asked['view'], fault: FormFault) =>
    sendPage(reply.code(422), listPage({ ...view, ...nothing, fault }))

  const personal = isPersonal(place.declared)
  const show = async (request: FastifyRequest<PlaceParams>, reply: FastifyReply) => {
    const { view, given, own, fault } = await askedOf(request, reply)
    if (fault !== null) return refuse(reply, view, fault)
    if (personal ? request.method !== 'POST' : !isAsked(place, view.typed, given))
      return sendPage(reply, listPage({ ...view, ...nothing, fault: null }))
    const cursor = view.typed.text('cursor') || null
    const outcome = await attempt(() =>
      place.declared.slow === true
        ? soon(context, view, request, (progress) =>
            found(context, place, { given, own: { ...own, progress }, cursor }),
          )
        : inTurn(request, async () => ({
            result: await found(context, place, { given, own, cursor }),
          })),
    )
    if ('fault' in outcome) return refuse(reply, view, outcome.fault)
    if ('work' in outcome.done) {
      request.asksByItself = true
      const { title, startedAtMs, progress } = outcome.done.work
      const work = { title, since: new Date(startedAtMs), progress, path: request.url }
      return sendPage(reply, workPage({ viewer: view.viewer, ...work }))
    }
    return sendPage(reply, listPage({ ...view, ...outcome.done.result, fault: null }))
  }
  pages.get(place.path, show)
  if (personal) pages.post(place.path, show)

  if (columns === undefined || !hasCsv(place.declared)) return
  pages.get<PlaceParams>(`${place.path}.csv`, async (request, reply) => {
    const { view, given, own, fault } = await askedOf(request, reply)
    if (fault !== null) return refuse(reply, view, fault)
    const outcome = await attempt(() => inTurn(request, async () => place.declared.read(given).run(own)))
    if ('fault' in outcome) return refuse(reply, view, outcome.fault)
    const rows = outcome.done.json as readonly Row[]
    if (rows.length > csvRowsMax) {
      const message = `there are more than ${csvRowsMax} rows, the maximum for a file`
      return refuse(reply, view, { field: null, message })
    }
    const text = csvOf(
      columns.map((column) => column.name),
      rows.map((row) => columns.map((column) => csvCell(row[column.name], column.kind))),
    )
    const times = place.declared.fields
      .filter(({ control, name }) => ['month', 'day'].includes(control) && given[name] !== undefined)
      .map((field) => `-${given[field.name]}`)
    return sendCsv(reply, `${name.replace(' ', '-')}${times.join('')}`, text)
  })
}

/** The maximum number of rows that spreadsheet programs can open without problems. */
const csvRowsMax = 50_000

/** The time for which a request waits for the answer of a slow query before the page shows the progress instead. */
const waitMs = 1_500

const soon = (
  { works }: Dashboard,
  view: DeclaredView,
  request: FastifyRequest,
  run: (progress: (line: string) => void) => Promise<Found>,
): Promise<{ result: Found } | { work: Work }> => {
  const { standing, url } = request
  assert(standing !== null)
  // A user with a changed role or organization can no longer open earlier results.
  const owner = JSON.stringify([standing.user, standing.role, standing.organizationId])
  const title = view.account === null ? titleOf(view) : `${titleOf(view)}: ${view.account.name}`
  return works.soon({ key: url, title, owner, asker: askerOf(request), run }, waitMs)
}

/** The maximum number of files that this process writes concurrently. It is low, because each file is read from the start of a ledger. */
const filesMax = 4

const fileRoute = (pages: FastifyInstance, context: Dashboard, place: Place): void => {
  const enter = createPlaces(filesMax)
  pages.get<PlaceParams>(`${place.path}/file`, async (request, reply) => {
    const view = { ...(await viewAt(context, place, request, reply)), typed: formOf(request.query) }
    const outcome = await attempt(async () => {
      const { file } = place.declared.read(givenIn(place, view.typed, view.account?.organization_id ?? null))
      if (file === undefined) throw new CommandRefused('choose the format of the file')
      const leave = enter(askerOf(request))
      if (leave === null)
        return reply
          .code(503)
          .header('retry-after', 10)
          .type('text/plain')
          .send('Too many files are being written. Try again in a moment.\n')
      const own = contextOf(context, view, request)
      return sendFile(reply, file, (write) =>
        file
          .write(own, write)
          .catch((error: unknown) => {
            if (!reply.raw.destroyed)
              context.logger.warn({ err: error, file: file.name }, 'a file was not written')
            throw error
          })
          .finally(leave),
      )
    })
    if ('done' in outcome) return outcome.done
    return sendPage(reply.code(422), listPage({ ...view, ...nothing, fault: outcome.fault }))
  })
}

/** Whether to run the query now. Long-running work and files run only when their form is sent, and an empty form is not an error. */
const isAsked = (place: Place, typed: Form, given: Given): boolean => {
  if (place.declared.long !== undefined || place.declared.types !== undefined) return false
  const fields = askedFields(place)
  return (
    fields.some(({ flag }) => typed.text(flag) !== '') ||
    !fields.some(({ name, required }) => required && given[name] === undefined)
  )
}

const found = async (
  { foundation }: Dashboard,
  { declared: { read, columns } }: Place,
  { given, own, cursor }: { readonly given: Given; readonly own: Context; readonly cursor: string | null },
): Promise<Found> => {
  const asked = read(given)
  const answer = asked.page === undefined ? await asked.run(own) : null
  if (answer !== null && (columns === undefined || answer.sections !== undefined))
    return { ...nothing, answer }
  const stretch = { cursor, max: rowsDefault }
  const page = answer === null ? await pageOf(asked, own, stretch) : partOf(answer, stretch)
  const ids = (columns ?? [])
    .filter(({ kind, named }) => kind === 'organization' && named === undefined)
    .flatMap(({ name }) => page.rows.map((row) => row[name]))
    .filter((id) => typeof id === 'string')
  return { ...nothing, page, names: await namesOf(foundation, ids), further: cursor !== null }
}

/** The first rows of a list, of an organization or of all, for a section of another page. */
export const newestOf = async (
  name: Declared['name'],
  context: Dashboard,
  request: FastifyRequest,
  {
    viewer,
    account,
    max,
  }: { readonly viewer: Viewer; readonly account: AccountRow | null; readonly max: number },
): Promise<Html> => {
  const place = places.find(
    ({ declared, organization }) => organization === (account !== null) && declared.name === name,
  )
  assert(place !== undefined)
  const view = { viewer, place, account }
  const asked = place.declared.read(account === null ? {} : { organization: account.organization_id })
  const page = await pageOf(asked, contextOf(context, view, request), { cursor: null, max })
  return listOf({ ...view, ...nothing }, { ...page, next: null }, '')
}

const csvCell = (value: unknown, kind: string | undefined) => {
  if (value === null || value === undefined) return ''
  if (Array.isArray(value)) return value.join(' ')
  return kind === 'credits' || kind === 'change' || kind === 'number'
    ? { number: String(value) }
    : String(value)
}

/** Throws `PageMissing` if the organization does not exist. */
const viewAt = async (
  context: Dashboard,
  place: Place,
  request: FastifyRequest<PlaceParams>,
  reply: FastifyReply,
): Promise<DeclaredView> => {
  const account = place.organization ? await accountAt(context, request.params.organization ?? '') : null
  return { place, account, viewer: viewerOf(request, reply) }
}

const contextOf = (
  { foundation, logger, settings, twoPerson, outside, pixel, publicUrl }: Dashboard,
  { viewer }: DeclaredView,
  request: FastifyRequest,
): Context => ({
  foundation,
  logger,
  twoPerson,
  requestedAt: new Date().toISOString(),
  operator: { ...provedOperator(viewer.user), role: viewer.role },
  outside: async () => outside,
  data: async () => capabilityDataOf(foundation, { settings, logger }),
  caughtUp: async () => undefined,
  pixel: (use) => use(pixel),
  progress: () => undefined,
  dashboardUrl: async () => publicUrl ?? `${request.protocol}://${request.host}`,
})

/** Pages with the progress and the answer of long-running work in any process. */

/**
 * Requests the work of a form, and returns the URL of the work. The same form returns the same URL when it is sent again. Throws
 * `FormSentBefore` if it is sent again with other values.
 */
const requestedWork = async (
  { foundation, logger }: Dashboard,
  sent: { readonly user: string; readonly path: string; readonly once: string },
  work: { readonly declared: Declared; readonly given: Given; readonly operator: Operator },
): Promise<string> => {
  const form = [sent.user, sent.path, sent.once, JSON.stringify(work.given)]
  const id = eventIdOf('long-work', form.join(' '), 0)
  if ((await longWork(foundation.pool, id)) === null) {
    await takeForm(foundation.pool, sent, Date.now())
    await requestLongWork(foundation, { id, ...work }, logger)
  }
  return `/jobs/${id}`
}

type JobParams = { Params: { job: string } }

const longWorkRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<JobParams>('/jobs/:job', async (request, reply) => {
    const work = await workAt(context, request)
    const view = await viewOf(context, work, request, reply)
    if (work.state === 'waiting' || work.state === 'running') {
      const title = capitalized(view.place.declared.summary)
      const progress = { title, since: work.requestedAt, progress: saidOf(work), path: `/jobs/${work.id}` }
      return sendPage(reply, workPage({ viewer: view.viewer, ...progress }))
    }
    // The page no longer refreshes itself, because the work has ended.
    request.asksByItself = false
    try {
      return sendPage(reply, workAnswerPage({ ...view, answer: answerOf(work) }))
    } catch (error) {
      const refused = faultOf(error)
      const message = refused?.message ?? `The work failed: ${work.error}`
      return sendPage(reply.code(refused === null ? 200 : 422), workFailedPage({ ...view, message }))
    }
  })
}

const saidOf = ({ state, progress }: LongWork): string =>
  progress?.line ?? (state === 'waiting' ? 'Waiting for a process that runs jobs.' : 'Started.')

/** Throws `PageMissing` if the user's role does not permit this work. */
const workAt = async ({ foundation }: Dashboard, request: FastifyRequest<JobParams>): Promise<LongWork> => {
  request.asksByItself = true
  const work = await longWork(foundation.pool, request.params.job)
  if (work === null || request.standing === null || !mayDo(request.standing.role, work.action))
    throw new PageMissing()
  return work
}

/** The view of the form that requested the work: the organization's own form if the work is for one organization. */
const viewOf = async (
  context: Dashboard,
  { name, given }: LongWork,
  request: FastifyRequest,
  reply: FastifyReply,
) => {
  const offered = places.filter(({ declared }) => declared.name === name)
  const scope = offered[0]?.declared.fields.find(({ control }) => control === 'organization')
  const organizationId = scope === undefined ? undefined : given[scope.name]
  const place =
    offered.find(({ organization }) => organization === (organizationId !== undefined)) ?? offered[0]
  if (place === undefined) throw new PageMissing()
  const account = place.organization ? await accountAt(context, String(organizationId)) : null
  return { place, viewer: viewerOf(request, reply), account, about: given }
}
