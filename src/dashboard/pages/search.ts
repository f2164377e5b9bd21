import { isIP } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { movementsUnder } from '../../../projections/audit.ts'
import { callOfEvent, callsOfRequest } from '../../../projections/statement-lines.ts'
import { declarations } from '../../administration/declarations.ts'
import { auditSentence } from '../../administration/event-log/audit-sentences.ts'
import { lookedAtMax, recentEvent } from '../../administration/event-log/event-pages.ts'
import { isStream } from '../../administration/event-log/queries.ts'
import type { Picks } from '../../administration/fields.ts'
import { labelOf } from '../../administration/input.ts'
import { requestIdIn } from '../../call/request-id.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import { isStreamOfOurs, ledgerStream, organizationOfStream } from '../../events/streams.ts'
import { testOrganizationOf } from '../../events/test-organization.ts'
import type { UserRole } from '../../events/users.ts'
import { mayOpen } from '../access.ts'
import { eventHref, hrefOf, streamHref } from '../declared.ts'
import { formOf } from '../form.ts'
import { capitalized, count } from '../format.ts'
import { type Html, html } from '../html.ts'
import { menu, organizationMenu } from '../menu.ts'
import { askerOf, attempt, type Dashboard, sendPage, sendPart, viewerOf } from '../page.ts'
import { choicesMax, choicesMeant, choicesNamed } from '../picking.ts'
import { type Choice, choiceOptions, suggesting, suggestions } from './choices.ts'
import { csrfField, type FormFault, faultNotice, layout, table, type Viewer } from './layout.ts'

/**
 * The search on every page. Users find only pages that their role can open. A partner's user finds only pages of the partner's own
 * organization, and cannot find out whether other organizations exist.
 */

type Seeker = {
  readonly role: UserRole
  /** A partner's own organization; null if the user may see all organizations. */
  readonly organizationId: string | null
  /** The partner's organization and its test organization. */
  readonly own: readonly string[] | null
}

type Finder = {
  readonly title: string
  /** Describes the text for the search field. */
  readonly by: string
  readonly find: (text: string) => Promise<Hits>
}

type Hits = Omit<Found, 'title'>

const firstOf = (hits: readonly Hit[]): Hits => ({
  hits: hits.slice(0, choicesMax),
  more: hits.length > choicesMax,
})

const seekerOf = (request: FastifyRequest, role: UserRole): Seeker => {
  const { organizationId } = askerOf(request)
  const own = organizationId === null ? null : [organizationId, testOrganizationOf(organizationId)]
  return { role, organizationId, own }
}

const isFor = ({ own }: Seeker, organizationId: string): boolean => own?.includes(organizationId) ?? true

const callHref = (organizationId: string, requestId: string): string =>
  `/organizations/${organizationId}/calls/${requestId}`

const callsOf = async (
  { foundation: { pool } }: Dashboard,
  seeker: Seeker,
  text: string,
): Promise<readonly Hit[]> => {
  const id = requestIdIn(text)
  if (id === null) return []
  const places = await rowsOf(pool, callsOfRequest(id, null))
  const organizations = new Set(places.map(({ organization_id }) => organization_id))
  return [...organizations]
    .filter((one) => isFor(seeker, one))
    .map((one) => ({ id, name: id, about: one, href: callHref(one, id), exact: true }))
}

/** The lines of the grants and corrections under an operator's reference, or under the common reference of many refunds. */
const movementsOf = async (
  { foundation: { pool, eventLog } }: Dashboard,
  seeker: Seeker,
  text: string,
): Promise<readonly Hit[]> => {
  const ledgers = seeker.own?.map(ledgerStream) ?? null
  const rows = await rowsOf(pool, movementsUnder(text, { ledgers, max: choicesMax + 1 }))
  const events = await Promise.all(rows.map(({ position }) => eventLog.at(BigInt(position))))
  return events.flatMap((recorded) => {
    const organizationId = recorded === null ? null : organizationOfStream(recorded.stream)
    if (recorded === null || organizationId === null || !isFor(seeker, organizationId)) return []
    const event = decodeEvent(recorded)
    if (event.type !== 'CreditGranted' && event.type !== 'CreditAdjusted') return []
    const { reference } = event.data
    if (reference === null || (reference !== text && !reference.startsWith(`${text}/`))) return []
    const about = `${event.metadata.effective_at.slice(0, 10)}, ${organizationId}: ${auditSentence(event)}`
    const href = `/organizations/${organizationId}/ledger/lines?cursor=${recorded.revision + 1}`
    return [{ id: reference, name: reference, about, href, exact: reference === text }]
  })
}

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Finds only the newest events and calls with an Idempotency-Key, because the log has no index of ids. */
const eventsOf = async (
  { foundation: { pool, eventLog } }: Dashboard,
  seeker: Seeker,
  text: string,
): Promise<readonly Hit[]> => {
  if (!uuidPattern.test(text)) return []
  const id = text.toLowerCase()
  const [row] = await rowsOf(pool, callOfEvent(id))
  const recent = row === undefined ? await recentEvent(eventLog, id) : null
  const place =
    row === undefined
      ? recent
      : { stream: ledgerStream(row.organization_id), revision: Number(row.revision), type: 'KeyUsed' }
  if (place === null) return []
  const hit = { id, name: place.type, about: place.stream, exact: true }
  if (mayOpen(seeker.role, 'GET /commands/event-log/show')) return [{ ...hit, href: eventHref(place) }]
  const organizationId = organizationOfStream(place.stream)
  const requestId = row?.request_id ?? /"request_id":"([0-9A-Z]{26})"/.exec(recent?.metadata ?? '')?.[1]
  if (organizationId === null || requestId === undefined || !isFor(seeker, organizationId)) return []
  return [{ ...hit, about: `call ${requestId}`, href: callHref(organizationId, requestId) }]
}

const streamsOf = async ({ foundation: { eventLog } }: Dashboard, text: string): Promise<readonly Hit[]> =>
  isStream(text) && isStreamOfOurs(text) && (await eventLog.lastRevision(text)) !== null
    ? [{ id: text, name: text, about: '', href: streamHref(text), exact: true }]
    : []

/** The prefix of a key, followed by the key's id or a part of the id. A secret after the id is ignored. */
const keyForm = /^(enl_[a-z]+_)([0-9A-Za-z]{0,16}).*$/

const picked: Readonly<
  Record<Picks, { title: string; by: string; route: string; href: (one: Choice) => string }>
> = {
  organizations: {
    title: 'Organizations',
    by: 'the name or id of an organization',
    route: 'GET /organizations/:organization',
    href: ({ id }) => `/organizations/${id}`,
  },
  keys: {
    title: 'API keys',
    by: 'the name or id of an API key, or the beginning of the key',
    route: 'GET /organizations/:organization/keys/:key',
    href: ({ id, organization_id }) => `/organizations/${organization_id}/keys/${id}`,
  },
  users: {
    title: 'Users',
    by: 'the name of a user',
    route: 'GET /commands/user/list',
    href: ({ id }) => `/commands/user/list?${new URLSearchParams({ name: id }).toString()}`,
  },
}

const chosenBy = async (
  { foundation: { pool } }: Dashboard,
  { own }: Seeker,
  kind: Picks,
  typed: string,
): Promise<Hits> => {
  const text = kind === 'keys' ? (keyForm.exec(typed)?.[2] ?? typed) : typed
  const searched = { kind, organizationIds: own }
  const [meant, named] = await Promise.all([
    choicesMeant(pool, searched, text),
    choicesNamed(pool, { ...searched, text }),
  ])
  const hit = (exact: boolean) => (one: Choice) => ({ ...one, exact, href: picked[kind].href(one) })
  const others = named.found.filter(({ id }) => !meant.some((one) => one.id === id))
  const { hits, more } = firstOf([...meant.map(hit(true)), ...others.map(hit(false))])
  return { hits, more: more || named.more }
}

const pagesOf = (seeker: Seeker, text: string): readonly Hit[] => {
  const { role, organizationId } = seeker
  const pages =
    organizationId === null
      ? menu.filter(({ href }) => mayOpen(role, `GET ${href}`))
      : organizationMenu.map(({ path, name }) => ({ name, href: `/organizations/${organizationId}${path}` }))
  const all = [
    ...[...pages, { name: 'Your own account', href: '/me' }].map(({ name, href }) => ({
      name,
      href,
      about: 'page',
    })),
    ...declarations.flatMap((declared) => {
      const href = hrefOf(declared, { role, organizationId })
      return href === null ? [] : [{ name: declared.name, href, about: capitalized(declared.summary) }]
    }),
  ]
  const wanted = text.toLowerCase()
  return all
    .filter(({ name, about }) => `${name}\n${about}`.toLowerCase().includes(wanted))
    .map((one) => ({ ...one, id: one.name, exact: one.name.toLowerCase() === wanted }))
    .toSorted((one, other) => Number(other.exact) - Number(one.exact))
}

/** A finder for each kind of result that the user can open. */
const findersFor = (context: Dashboard, seeker: Seeker): readonly Finder[] => [
  {
    title: 'Calls',
    by: 'the request id of a call',
    find: async (text) => firstOf(await callsOf(context, seeker, text)),
  },
  {
    title: 'Grants and corrections',
    by: 'the reference of a grant, refund or adjustment',
    find: async (text) => firstOf(await movementsOf(context, seeker, text)),
  },
  ...(['organizations', 'keys', 'users'] as const)
    .filter((kind) => mayOpen(seeker.role, picked[kind].route))
    .map((kind) => ({ ...picked[kind], find: (text: string) => chosenBy(context, seeker, kind, text) })),
  {
    title: 'Events',
    by: `the id of an event that is among the newest ${count(lookedAtMax)} or records a call with an Idempotency-Key`,
    find: async (text) => firstOf(await eventsOf(context, seeker, text)),
  },
  ...(mayOpen(seeker.role, 'GET /commands/event-log/list')
    ? [
        {
          title: 'Streams',
          by: 'the name of a stream',
          find: async (text: string) => firstOf(await streamsOf(context, text)),
        },
      ]
    : []),
  {
    title: 'Pages and commands',
    by: 'the name of a page or command',
    find: async (text) => firstOf(pagesOf(seeker, text)),
  },
]

const foundBy = (finders: readonly Finder[], text: string): Promise<Found[]> =>
  Promise.all(finders.map(async ({ title, find }) => ({ title, ...(await find(text)) })))

/** The text to search for, without the secret of an API key. Throws `InputFault`. */
const textIn = (body: unknown): string =>
  labelOf('q', formOf(body).text('q')).replace(keyForm, (_, prefix: string, id: string) => prefix + id)

/** Whether a string looks like an e-mail or IP address. Profile ids look like any other word. */
const isAddress = (text: string): boolean => text.includes('@') || isIP(text) !== 0

/** The URL of the form that finds calls about a string; null if the form is not suitable for the text or not permitted for the user. */
const callsAboutIn = (text: string, found: readonly Found[], { role, organizationId }: Seeker) => {
  const isOffered = isAddress(text) || found.every(({ hits }) => hits.length === 0)
  return isOffered ? hrefOf({ name: 'ledger find-calls' }, { role, organizationId }) : null
}

/** The text can be personal data, so it is sent in a form and never in a URL. */
export const searchRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const empty = { text: '', found: [], fault: null, callsAbout: null } as const
  const start = (request: FastifyRequest, reply: FastifyReply) => {
    const viewer = viewerOf(request, reply)
    const seeker = seekerOf(request, viewer.role)
    const finders = findersFor(context, seeker)
    return { viewer, seeker, finders, can: finders.map(({ by }) => by) }
  }
  pages.get('/search', async (request, reply) => {
    const { viewer, can } = start(request, reply)
    return sendPage(reply, searchPage({ ...empty, viewer, can }))
  })
  pages.post('/search', async (request, reply) => {
    const { viewer, seeker, finders, can } = start(request, reply)
    if (formOf(request.body).text('q').trim() === '')
      return sendPage(reply, searchPage({ ...empty, viewer, can }))
    const read = await attempt(async () => textIn(request.body))
    if ('fault' in read)
      return sendPage(reply.code(422), searchPage({ ...empty, viewer, can, fault: read.fault }))
    const { done: text } = read
    const found = await foundBy(finders, text)
    const [one, ...others] = found.flatMap(({ hits }) => hits.filter(({ exact }) => exact))
    if (one !== undefined && others.length === 0 && !isAddress(text)) return reply.redirect(one.href, 303)
    const callsAbout = callsAboutIn(text, found, seeker)
    return sendPage(reply, searchPage({ ...empty, viewer, can, text, found, callsAbout }))
  })
  pages.post('/search/choices', async (request, reply) => {
    const { finders } = start(request, reply)
    const read = await attempt(async () => textIn(request.body))
    const found = 'fault' in read ? [] : await foundBy(finders, read.done)
    return sendPart(reply, choiceOptions({ found: found.flatMap(({ hits }) => hits).slice(0, choicesMax) }))
  })
}

type Hit = Pick<Choice, 'id' | 'name' | 'about'> & {
  readonly href: string
  /** Whether the searched text is the whole id or name of the result. */
  readonly exact: boolean
}

/** Search results of one kind. `more` is true if there are more results of this kind. */
type Found = { readonly title: string; readonly hits: readonly Hit[]; readonly more: boolean }

const searchPage = ({
  viewer,
  can,
  text,
  found,
  fault,
  callsAbout,
}: {
  readonly viewer: Viewer
  /** The kinds of text for which this user can search. */
  readonly can: readonly string[]
  readonly text: string
  readonly found: readonly Found[]
  readonly fault: FormFault | null
  /** The address of the form that finds the calls about the text; null if the page does not offer it. */
  readonly callsAbout: string | null
}): Html => {
  const groups = found.filter(({ hits }) => hits.length > 0)
  const title = text === '' ? 'Search' : `Search: ${text}`
  return layout({
    // The title must not contain the text, because browsers store titles in their history.
    title: 'Search',
    viewer,
    searched: text,
    main: html`<h1>${title}</h1>
${faultNotice(fault)}
${groups.map(groupSection)}
${callsAbout !== null && callsAboutForm(viewer, { text, at: callsAbout })}
${
  groups.length === 0 &&
  html`${text !== '' && html`<p class="empty">No results with this id or name. A new call can be found after about a second.</p>`}
<p>You can search for:</p>
<ul>${can.map((one) => html`<li>${one}</li>`)}</ul>`
}`,
  })
}

/** The form asks for an organization outside the pages of an organization. */
const callsAboutForm = (
  { csrf }: Viewer,
  { text, at }: { readonly text: string; readonly at: string },
): Html => html`<section aria-labelledby="calls-about">
<h2 id="calls-about">Calls about this input</h2>
<p>Find the calls of one organization about this e-mail address, IP address or profile. The audit records you and the organization, but not the text.</p>
<form class="fields" method="post" action="${at}">
${csrfField(csrf)}
<input type="hidden" name="input" value="${text}">
${
  at.startsWith('/commands/') &&
  html`<p><label for="org">Organization</label>
<input id="org" name="org" required maxlength="200" autocomplete="off"${suggesting('org', { address: '/pick/organizations', within: null })}></p>
${suggestions('org')}`
}
<p class="actions"><button type="submit">Find calls about this input</button></p>
</form>
</section>`

const groupSection = (
  { title, hits, more }: Found,
  i: number,
): Html => html`<section aria-labelledby="group-${i}">
<h2 id="group-${i}">${title}</h2>
${table({
  caption: title,
  rows: hits,
  columns: [
    { head: 'Name', kind: 'name', cell: ({ href, name }) => html`<a href="${href}">${name}</a>` },
    { head: 'Id', cell: ({ id, name }) => id !== name && html`<span class="id whole">${id}</span>` },
    { head: 'About', cell: ({ about }) => about },
  ],
})}
${more && html`<p class="note">There are more results. Type more of the name.</p>`}
</section>`
