import { type LogPage, lookedAtMax, type StreamPage } from '../../administration/event-log/event-pages.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import { isStreamName } from '../../event-log/port.ts'
import type { ChainLink } from '../../event-log/verify/page-chain.ts'
import { catalogue } from '../../events/catalogue.ts'
import { organizationOfStream } from '../../events/streams.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { crumbs, described, type FormFault, faultNotice, layout, table, type Viewer } from './layout.ts'

/** The event log and its streams, newest events first. */

type EventsView = {
  readonly viewer: Viewer
  readonly typed: { readonly stream: string; readonly type: string }
  readonly fault: FormFault | null
  /** Null if the form has a fault. */
  readonly page: LogPage | null
  readonly before: bigint | null
}

export const eventsPage = ({ viewer, typed, fault, page, before }: EventsView): Html =>
  layout({
    title: 'Events',
    viewer,
    at: '/events',
    main: html`<h1>Events</h1>
<p class="note">The events of the log as they were written, newest first. Sealed data stays sealed.</p>
${faultNotice(fault)}
${filterForm({ typed, fault, action: '/events' })}
${page !== null && foundEvents(page, typed.type)}
${page !== null && pagesLinks({ href: '/events', type: typed.type, further: before !== null, next: page.next })}`,
  })

const filterForm = ({
  typed,
  fault,
  action,
}: Pick<EventsView, 'typed' | 'fault'> & { readonly action: string }): Html =>
  html`<form class="filters" method="get" action="${action}">
<p><label for="stream">Stream</label>
<input id="stream" name="stream" value="${typed.stream}" placeholder="any" maxlength="140" autocomplete="off" spellcheck="false"${described('stream', fault)}></p>
<p><label for="type">Type</label>
<input id="type" name="type" value="${typed.type}" placeholder="any" maxlength="100" list="types" autocomplete="off" spellcheck="false"${described('type', fault)}>
<datalist id="types">${Object.keys(catalogue).map((type) => html`<option value="${type}">`)}</datalist></p>
<p class="actions"><button type="submit">Show</button></p>
</form>`

const foundEvents = (page: LogPage, type: string): Html => html`${page.unreadable.map(
  ({ message }) => html`<p class="notice bad" role="alert">${message}</p>`,
)}
${
  page.events.length === 0
    ? html`<p class="empty">${nothing(page, type)}</p>`
    : table({ caption: 'Events, newest first', rows: page.events, columns: [...inLog, ...ofEvent] })
}`

const nothing = ({ lookedAt, next }: LogPage, type: string): string => {
  if (type === '') return 'No events.'
  const more = next === null ? 'There are no more events.' : 'Continue the search with older events.'
  return `The type ${type} does not occur among the ${count(lookedAt)} events searched. ${more} Each search covers about ${count(lookedAtMax)} events.`
}

export const eventHref = ({ stream, revision }: Pick<RecordedEvent, 'stream' | 'revision'>): string =>
  `/events/streams/${encodeURIComponent(stream)}/${revision}`

/** Streams of other software can have names that have no page. */
export const streamLink = (stream: string): Renderable =>
  isStreamName(stream)
    ? html`<a href="/events/streams/${encodeURIComponent(stream)}"><span class="id">${stream}</span></a>`
    : html`<span class="id">${stream}</span>`

const typeLink = (event: RecordedEvent): Renderable =>
  isStreamName(event.stream) ? html`<a href="${eventHref(event)}">${event.type}</a>` : event.type

const inLog = [
  { head: 'Position', kind: 'number', cell: ({ position }: RecordedEvent) => count(position) },
  { head: 'Stream', cell: ({ stream }: RecordedEvent) => streamLink(stream) },
] as const

const ofEvent = [
  { head: 'Revision', kind: 'number', cell: ({ revision }: RecordedEvent) => count(revision) },
  { head: 'Event', cell: typeLink },
  {
    head: 'Recorded (UTC)',
    cell: ({ recordedAtMs }: RecordedEvent) => instant(new Date(recordedAtMs), { milliseconds: true }),
  },
] as const

const pagesLinks = ({
  href,
  type,
  further,
  next,
}: {
  readonly href: string
  readonly type: string
  readonly further: boolean
  readonly next: bigint | number | null
}): Renderable => {
  const query = new URLSearchParams(type === '' ? {} : { type })
  const first = `${href}${query.size === 0 ? '' : `?${query}`}`
  if (next !== null) query.set('before', String(next))
  return (
    (further || next !== null) &&
    html`<p class="actions">${further && html`<a class="button quiet" href="${first}">Newest</a> `}${next !== null && html`<a class="button" href="${href}?${query.toString()}">Older</a>`}</p>`
  )
}

type StreamView = {
  readonly viewer: Viewer
  readonly stream: string
  readonly type: string
  readonly before: number | null
  readonly page: StreamPage
}

export const streamEventsPage = ({ viewer, stream, type, before, page }: StreamView): Html => {
  const organization = organizationOfStream(stream)
  return layout({
    title: stream,
    viewer,
    at: '/events',
    main: html`${crumbs([['/events', 'Events'], stream])}
<h1>${stream}</h1>
${organization !== null && html`<p class="note">The ledger of <a href="/organizations/${organization}">${organization}</a>.</p>`}
${filterForm({ typed: { stream, type }, fault: null, action: '/events' })}
${chainNotice(page.links)}
${
  page.events.length === 0
    ? html`<p class="empty">${type === '' ? 'There are no earlier events.' : `The type ${type} does not occur among the events searched.`}</p>`
    : table({
        caption: `Events of ${stream}, newest first`,
        rows: page.events,
        columns: [
          ...ofEvent.map(({ cell, ...column }) => ({
            ...column,
            cell: ({ event }: StreamPage['events'][number]) => cell(event),
          })),
          { head: 'Position', kind: 'number', cell: ({ event }) => count(event.position) },
          { head: 'Chain', cell: ({ link }) => chainMark(link) },
        ],
      })
}
${page.unreadable !== null && html`<p class="notice bad" role="alert">${page.unreadable.message}</p>`}
${pagesLinks({ href: `/events/streams/${encodeURIComponent(stream)}`, type, further: before !== null, next: page.next })}`,
  })
}

/** The state in words, because some people do not see the colour. */
export const chainMark = ({ state, why }: ChainLink): Renderable => {
  if (state === 'holds') return html`<span class="mark good">holds</span>`
  if (state === 'broken') return html`<span class="mark bad">broken</span> <small>${why}</small>`
  return html`<span class="mark warn">not checked</span> <small>${why}</small>`
}

const chainNotice = (links: readonly ChainLink[]): Renderable => {
  const [first, last] = [links[0], links.at(-1)]
  if (first === undefined || last === undefined) return null
  const broken = links.filter(({ state }) => state === 'broken')
  const [fault] = broken
  if (fault !== undefined)
    return html`<div class="notice bad" role="alert"><p>The chain is broken at revision ${count(fault.revision)}: ${fault.why}.${
      broken.length > 1 && ` It is also broken at ${count(broken.length - 1)} more of these events.`
    }</p><p>This check changed nothing. <a href="/commands/event-log/verify">Verify the whole event log</a></p></div>`
  const held = links.filter(({ state }) => state === 'holds').length
  const rest = held === links.length ? '' : ` ${count(links.length - held)} of them could not be checked.`
  return html`<p class="note">Revisions ${count(first.revision)} to ${count(last.revision)}: ${count(held)} digests were recomputed, and each matches the one in its event.${rest}</p>`
}
