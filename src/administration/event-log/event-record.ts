import { readingOf } from '../../event-log/event-reading.ts'
import type { RecordedEvent } from '../../event-log/port.ts'
import type { ChainLink } from '../../event-log/verify/page-chain.ts'
import { organizationOfStream } from '../../events/streams.ts'
import type { Next, Sections } from '../declare.ts'
import type { EventPage } from './event-pages.ts'

/** One event for people: its content, its context, and whether it is unchanged. No event in the log can make this fail. */
export const eventSections = ({ event, link, preceding, following }: EventPage): Sections => {
  const { metadata, reading } = readingOf(event)
  const { stream, revision, position, type, recordedAtMs } = event
  const organization = organizationOfStream(stream)
  const request = metadata?.request_id ?? null
  const recordedAt = new Date(recordedAtMs).toISOString()
  return [
    type,
    { stream, revision, position: String(position), recorded_at: recordedAt, chain: chainText(link) },
    'Envelope',
    {
      event_id: event.id,
      organization_id: organization ?? organizationIn(event.data),
      // Only requests of partners have a page.
      ...(ofCalls.includes(type) ? { request_id: request } : { request }),
      caused_by: metadata?.causation_id ?? null,
      repeats: metadata?.repeats ?? null,
      trace: metadata?.trace_id ?? null,
      actor: metadata?.actor ?? null,
      effective_at: metadata?.effective_at ?? null,
      recorded_at_by_the_writer: metadata?.recorded_at ?? null,
      schema_version: metadata?.schema_version ?? null,
      ...(metadata === null && {
        note: 'This release does not support this kind of metadata, so it is shown as it is stored.',
        metadata: shownText(event.metadata),
      }),
    },
    'Data',
    reading.kind === 'known'
      ? {
          ...(reading.version < reading.newest && {
            note: `The event was written with schema version ${reading.version}. This release reads it as version ${reading.newest}.`,
          }),
          as_read: shownText(JSON.stringify(reading.data, null, 2)),
          as_stored: shownText(event.data),
        }
      : {
          note: `This release cannot read this event: ${reading.why}. Its data is shown as it is stored.`,
          as_stored: shownText(event.data),
        },
    'Chain',
    {
      computed_from_the_event_and_the_digest_before_it: link.computed ?? 'not known',
      stored_in_the_event: link.carried ?? 'none',
      event_before_it:
        preceding !== null
          ? 'its digest is part of the computed digest'
          : revision === 0
            ? 'this is the first event of its stream'
            : 'it cannot be read',
      event_after_it: following === null ? 'there is no readable event yet' : chainText(following.link),
      note: 'This check does not show whether events were removed from the end, or whether the whole log was rewritten. The signed checkpoints show that.',
    },
  ]
}

const ofCalls = ['KeyUsed', 'CreditCharged']

const organizationIn = (data: string): string | null =>
  /"organization_id":"(org_(?:test_)?[0-9A-HJKMNP-TV-Z]{26})"/.exec(data)?.[1] ?? null

/** The state of a link of the chain, for people. */
export const chainText = ({ revision, state, why }: ChainLink): string => {
  if (state === 'holds') return 'holds'
  return state === 'broken' ? `broken at revision ${revision}: ${why}` : `not checked: ${why}`
}

const shownCharactersMax = 65_536

/** The text with a final line break. Characters that could mislead a reader are written as JSON escapes. */
const shownText = (text: string): string => {
  const shown = text
    .slice(0, shownCharactersMax)
    .replace(
      /[^\P{C}\n]/gu,
      (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
    )
  const cut =
    text.length > shownCharactersMax
      ? `\n(only the first ${shownCharactersMax} of ${text.length} characters are shown)`
      : ''
  return `${shown}${cut}\n`
}

/** The events next to an event, and the event that caused it. */
export const eventsAround = ({ event: { stream }, cause, preceding, following }: EventPage): Next[] => {
  const toEvent = (label: string, of: RecordedEvent | null | undefined): Next[] =>
    of === null || of === undefined
      ? []
      : [{ name: 'event-log show', label, given: { stream: of.stream, revision: String(of.revision) } }]
  return [
    ...toEvent('Previous event of the stream', preceding),
    ...toEvent('Next event of the stream', following?.event),
    ...toEvent(`Its cause: ${cause?.type}`, cause),
    { name: 'event-log list', label: 'Events of the stream', given: { stream } },
  ]
}
