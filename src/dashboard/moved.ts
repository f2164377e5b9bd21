import type { FastifyInstance } from 'fastify'
import { EventsUnreadable, positionMax } from '../event-log/port.ts'
import { eventHref } from './declared.ts'
import { type Dashboard, PageMissing } from './page.ts'

/** Addresses that lead to another page: of pages that have moved, which may be bookmarked, and of a form that was sent. */
export const moved = {
  '/organizations': '/commands/org/list',
  '/organizations/:organization/statement': '/organizations/:organization/ledger/lines',
  '/organizations/:organization/months': '/organizations/:organization/ledger/months',
  '/organizations/:organization/months/:month': '/organizations/:organization/ledger/totals?month=:month',
  '/organizations/:organization/months/:month/statement.csv':
    '/organizations/:organization/ledger/statement/file?month=:month&csv=on',
  '/organizations/:organization/months/:month/statement.jsonl':
    '/organizations/:organization/ledger/statement/file?month=:month&jsonl=on',
  '/months': '/commands/ledger/charges',
  '/months.csv': '/commands/ledger/charges.csv',
  '/reconcile': '/#reconciliation',
  '/first-call': '/',
  '/events': '/commands/event-log/list',
  '/events/streams/:stream': '/commands/event-log/list?stream=:stream',
  '/events/streams/:stream/:revision': '/commands/event-log/show?stream=:stream&revision=:revision',
} as const satisfies Readonly<Record<string, string>>

export const movedRoutes = (pages: FastifyInstance, { foundation: { eventLog } }: Dashboard): void => {
  for (const [from, to] of Object.entries(moved))
    pages.get(from, async (request, reply) => {
      const params = request.params as Readonly<Record<string, string>>
      const path = to.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))
      const [, query] = request.url.split('?')
      return reply.redirect(
        query === undefined ? path : `${path}${path.includes('?') ? '&' : '?'}${query}`,
        303,
      )
    })

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
