import type { FastifyInstance } from 'fastify'
import { EventsUnreadable, positionMax } from '../event-log/port.ts'
import { eventHref } from './declared.ts'
import { type Dashboard, PageMissing } from './page.ts'

/** Addresses that lead to another page: that of all organizations, which people guess, and that of a form that was sent. */
export const moved = {
  '/organizations': '/commands/org/list',
  '/first-call': '/',
} as const satisfies Readonly<Record<string, string>>

export const movedRoutes = (pages: FastifyInstance, { foundation: { eventLog } }: Dashboard): void => {
  for (const [from, to] of Object.entries(moved))
    pages.get(from, async (_request, reply) => reply.redirect(to, 303))

  pages.get<{ Params: { position: string } }>('/events/at/:position', async (request, reply) => {
    const position = /^\d{1,19}$/.test(request.params.position) ? BigInt(request.params.position) : null
    if (position === null || position > positionMax) throw new PageMissing()
    try {
      const event = await eventLog.at(position)
      if (event === null) throw new PageMissing()
      return reply.redirect(eventHref(event), 303)
    } catch (error) {
      if (!(error instanceof EventsUnreadable)) throw error
      // The page of the event says why the event cannot be read.
      return reply.redirect(eventHref({ stream: error.stream, revision: error.firstRevision }), 303)
    }
  })
}
