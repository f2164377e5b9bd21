import type { FastifyInstance } from 'fastify'
import { eventPage, newestEvents, streamPage } from '../administration/event-log/event-pages.ts'
import { EventsUnreadable, isEventTypeName, isStreamName, positionMax } from '../event-log/port.ts'
import { formOf } from './form.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { shownEventPage, unreadablePage } from './pages/event.ts'
import { eventsPage, streamEventsPage } from './pages/events.ts'
import type { FormFault } from './pages/layout.ts'

/** Pages of the raw event log. They must not fail because of an event in the log. */

type StreamParams = { Params: { stream: string } }
type EventParams = { Params: { stream: string; revision: string } }

const positionOf = (text: string): bigint => {
  const position = /^\d{1,19}$/.test(text) ? BigInt(text) : null
  if (position === null || position > positionMax) throw new PageMissing()
  return position
}
const revisionOf = (text: string): number => {
  if (!/^\d{1,15}$/.test(text)) throw new PageMissing()
  return Number(text)
}
/** Enough characters for a category and an id. */
const streamLengthMax = 140
export const isStream = (name: string): boolean => name.length <= streamLengthMax && isStreamName(name)

const streamOf = (name: string): string => {
  if (!isStream(name)) throw new PageMissing()
  return name
}

const hrefOfStream = (stream: string, type: string | null): string =>
  `/events/streams/${encodeURIComponent(stream)}${type === null ? '' : `?type=${encodeURIComponent(type)}`}`

type Typed = { readonly stream: string; readonly type: string }

const faultIn = ({ stream, type }: Typed): FormFault | null => {
  if (stream !== '' && !isStream(stream))
    return {
      field: 'stream',
      message: 'This is not a stream name. Streams have names such as ledger-org_01J… or operator.',
    }
  return type === '' || isEventTypeName(type)
    ? null
    : { field: 'type', message: 'This event type does not exist. Types have names such as CreditCharged.' }
}

export const eventRoutes = (pages: FastifyInstance, { foundation: { eventLog } }: Dashboard): void => {
  pages.get('/events', async (request, reply) => {
    const form = formOf(request.query)
    const typed = { stream: form.text('stream').trim(), type: form.text('type').trim() }
    const viewer = viewerOf(request, reply)
    const fault = faultIn(typed)
    if (fault !== null)
      return sendPage(reply.code(422), eventsPage({ viewer, typed, fault, page: null, before: null }))
    const type = typed.type === '' ? null : typed.type
    if (typed.stream !== '') return reply.redirect(hrefOfStream(typed.stream, type), 303)
    const before = form.text('before') === '' ? null : positionOf(form.text('before'))
    const page = await newestEvents(eventLog, { before, type })
    return sendPage(reply, eventsPage({ viewer, typed, fault: null, page, before }))
  })

  pages.get<{ Params: { position: string } }>('/events/at/:position', async (request, reply) => {
    const position = positionOf(request.params.position)
    try {
      const event = await eventLog.at(position)
      if (event === null || !isStream(event.stream)) throw new PageMissing()
      return reply.redirect(`${hrefOfStream(event.stream, null)}/${event.revision}`, 303)
    } catch (error) {
      if (!(error instanceof EventsUnreadable)) throw error
      return sendPage(reply, unreadablePage({ viewer: viewerOf(request, reply), error }))
    }
  })

  pages.get<StreamParams>('/events/streams/:stream', async (request, reply) => {
    const stream = streamOf(request.params.stream)
    const form = formOf(request.query)
    const type = form.text('type').trim()
    if (faultIn({ stream, type }) !== null) throw new PageMissing()
    const before = form.text('before') === '' ? null : revisionOf(form.text('before'))
    const page = await streamPage(eventLog, { stream, before, type: type === '' ? null : type })
    if (page === null) throw new PageMissing()
    return sendPage(reply, streamEventsPage({ viewer: viewerOf(request, reply), stream, type, before, page }))
  })

  pages.get<EventParams>('/events/streams/:stream/:revision', async (request, reply) => {
    const [stream, revision] = [streamOf(request.params.stream), revisionOf(request.params.revision)]
    const viewer = viewerOf(request, reply)
    try {
      const page = await eventPage(eventLog, { stream, revision })
      if (page === null) throw new PageMissing()
      return sendPage(reply, shownEventPage({ viewer, page }))
    } catch (error) {
      if (!(error instanceof EventsUnreadable)) throw error
      return sendPage(reply, unreadablePage({ viewer, error }))
    }
  })
}
