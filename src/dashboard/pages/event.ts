import type { EventPage } from '../../administration/event-log/event-pages.ts'
import { type EventReading, readingOf } from '../../event-log/event-reading.ts'
import type { EventsUnreadable } from '../../event-log/port.ts'
import type { EventMetadata } from '../../events/envelope.ts'
import { organizationOfStream } from '../../events/streams.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { chainMark, eventHref, streamLink } from './events.ts'
import { crumbs, figures, layout, table, type Viewer } from './layout.ts'

/** The page of one event: its content, its context, and a check for changes. */

export const shownEventPage = ({
  viewer,
  page,
}: {
  readonly viewer: Viewer
  readonly page: EventPage
}): Html => {
  const { event, link, preceding, following } = page
  const { metadata, reading } = readingOf(event)
  return layout({
    title: `${event.type}, revision ${event.revision} of ${event.stream}`,
    viewer,
    at: '/events',
    main: html`${crumbs([['/events', 'Events'], event.type])}
<h1>${event.type}</h1>
<p class="note">In the stream ${streamLink(event.stream)}</p>
${figures([
  ['Revision', count(event.revision)],
  ['Position', count(event.position)],
  ['Recorded (UTC)', instant(new Date(event.recordedAtMs), { milliseconds: true })],
  ['Chain', chainMark(link)],
])}
<p class="actions">${preceding !== null && html`<a class="button quiet" href="${eventHref(preceding)}">Previous event in the stream</a> `}${
      following !== null &&
      html`<a class="button quiet" href="${eventHref(following.event)}">Next event in the stream</a>`
    }</p>
${envelopeSection(page, metadata)}
${dataSection(page, reading)}
${chainSection(page)}`,
  })
}

const organizationPattern = /^org_(test_)?[0-9A-HJKMNP-TV-Z]{26}$/
const requestIdPattern = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** The organization of the event, from its stream or its content. */
const organizationIn = ({ stream, data }: EventPage['event']): string | null => {
  const named = organizationOfStream(stream) ?? /"organization_id":"(org_[\w]{26,31})"/.exec(data)?.[1] ?? ''
  return organizationPattern.test(named) ? named : null
}

const ofCalls = ['KeyUsed', 'CreditCharged']

const requestOf = ({ event }: EventPage, id: string | undefined): Renderable => {
  const organization = organizationOfStream(event.stream)
  if (id === undefined || organization === null || !ofCalls.includes(event.type)) return id
  if (!requestIdPattern.test(id) || !organizationPattern.test(organization)) return id
  return html`<a href="/organizations/${organization}/calls/${id}">${id}</a>`
}

const causeOf = ({ cause }: EventPage, id: string | undefined): Renderable =>
  cause === null
    ? id
    : html`<a href="${eventHref(cause)}">${cause.type}, revision ${count(cause.revision)}</a>`

const envelopeSection = (page: EventPage, metadata: EventMetadata | null): Html => {
  const { event } = page
  const organization = organizationIn(event)
  const rows: readonly (readonly [name: string, value: Renderable])[] = [
    ['Event id', event.id],
    [
      'Organization',
      organization !== null && html`<a href="/organizations/${organization}">${organization}</a>`,
    ],
    ['Request', requestOf(page, metadata?.request_id)],
    ['Caused by', causeOf(page, metadata?.causation_id)],
    ['Repeats', requestOf(page, metadata?.repeats)],
    ['Trace', metadata?.trace_id],
    ['Actor', metadata?.actor],
    ['Effective (UTC)', metadata?.effective_at],
    ["Recorded by the writer's clock (UTC)", metadata?.recorded_at],
    ['Schema version', metadata?.schema_version],
  ]
  return html`<section aria-labelledby="envelope">
<h2 id="envelope">Envelope</h2>
${table({
  caption: 'Metadata of the event',
  rows: rows.filter(([, value]) => value !== undefined && value !== false),
  columns: [
    { head: 'Field', kind: 'name', cell: ([name]) => name },
    { head: 'Value', cell: ([, value]) => html`<span class="id">${value}</span>` },
  ],
})}
${metadata === null && html`<p class="notice bad" role="alert">This release cannot read the metadata, so it is shown in its stored form.</p>`}
${metadata === null && raw(event.metadata)}
</section>`
}

const shownCharactersMax = 65_536

/** Replaces characters that could mislead a reader with JSON escapes. */
const visible = (text: string): string =>
  text.replace(
    /[^\P{C}\n]/gu,
    (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  )

const raw = (text: string): Html => html`<pre class="raw">${visible(text.slice(0, shownCharactersMax))}</pre>
${text.length > shownCharactersMax && html`<p class="note">Only the first ${count(shownCharactersMax)} of ${count(text.length)} characters are shown.</p>`}`

const dataSection = ({ event }: EventPage, reading: EventReading['reading']): Html =>
  reading.kind === 'known'
    ? html`<section aria-labelledby="data">
<h2 id="data">Data</h2>
${
  reading.version < reading.newest &&
  html`<p class="note">The event was written with schema version ${reading.version}. This release reads it as version ${reading.newest}:</p>`
}
${raw(JSON.stringify(reading.data, null, 2))}
<details><summary>As it is stored</summary>${raw(event.data)}</details>
</section>`
    : html`<section aria-labelledby="data">
<h2 id="data">Data</h2>
<p class="notice${reading.kind === 'faulty' && ' bad'}"${reading.kind === 'faulty' && html` role="alert"`}>This release cannot read this event: ${reading.why}. Its data is shown in its stored form.</p>
${raw(event.data)}
</section>`

const chainSection = ({ event, link, preceding, following }: EventPage): Html =>
  html`<section aria-labelledby="chain">
<h2 id="chain">Chain</h2>
${link.state === 'broken' && html`<p class="notice bad" role="alert">The chain is broken at revision ${count(link.revision)}: ${link.why}.</p>`}
${
  following?.link.state === 'broken' &&
  html`<p class="notice bad" role="alert">The chain is broken at revision ${count(following.link.revision)}: ${following.link.why}.</p>`
}
${table({
  caption: 'Digests of the event, and of the events before and after it',
  rows: [
    ['Computed from the event and the digest before it', link.computed ?? 'not known'],
    ['Stored in the event', link.carried ?? 'none'],
    [
      'The event before it',
      preceding === null
        ? event.revision === 0
          ? 'This is the first event of its stream.'
          : 'It cannot be read.'
        : 'Its digest is part of the computed digest.',
    ],
    [
      'The event after it',
      following === null ? 'There is no readable event yet.' : chainMark(following.link),
    ],
  ] as const,
  columns: [
    { head: 'What', kind: 'name', cell: ([name]) => name },
    { head: 'Digest', cell: ([, value]) => html`<span class="id">${value}</span>` },
  ],
})}
<p class="note">This check does not show whether events were removed from the end, or whether the whole log was rewritten. The signed checkpoints show that.</p>
</section>`

/** The page for events that cannot be read. Only their positions are known. */
export const unreadablePage = ({
  viewer,
  error,
}: {
  readonly viewer: Viewer
  readonly error: EventsUnreadable
}): Html =>
  layout({
    title: `Events of ${error.stream}`,
    viewer,
    at: '/events',
    main: html`${crumbs([['/events', 'Events'], error.stream])}
<h1>Events that cannot be read</h1>
<p class="notice bad" role="alert">${error.message}</p>
<p>The events before and after them are in ${streamLink(error.stream)}.</p>`,
  })
