import type { FastifyInstance } from 'fastify'
import {
  type AuditEntry,
  auditEntries,
  auditFilterOf,
  auditLeftOut,
} from '../administration/event-log/audit.ts'
import { faultOf, formOf } from './form.ts'
import { type Dashboard, sendPage, viewerOf } from './page.ts'
import { auditPage } from './pages/audit.ts'
import { namesOf } from './queries.ts'

const shownMax = 100

/** Every change by anyone, with filters: the same content as the command "audit list". */
export const auditRoutes = (pages: FastifyInstance, { foundation }: Dashboard): void => {
  pages.get('/audit', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const form = formOf(request.query)
    const typed = (name: string): string => form.text(name).trim()
    const asked = (name: string): string | undefined => (typed(name) === '' ? undefined : typed(name))
    const after = /^\d{1,19}$/.test(typed('after')) ? typed('after') : null
    const shown = { viewer, typed, leftOut: await auditLeftOut(foundation), further: after !== null }
    try {
      const filter = auditFilterOf({
        since: asked('since'),
        actor: asked('actor'),
        about: asked('about'),
        type: asked('type'),
        oldestFirst: typed('order') === 'oldest',
      })
      const entries: AuditEntry[] = []
      for await (const entry of auditEntries(foundation, filter, { max: shownMax + 1, after }))
        entries.push(entry)
      const listed = entries.slice(0, shownMax)
      const next = entries.length > shownMax ? (listed.at(-1)?.position ?? null) : null
      const names = await namesOf(
        foundation.pool,
        listed.flatMap(({ organizationId }) => organizationId ?? []),
      )
      return sendPage(reply, auditPage({ ...shown, entries: listed, names, next, fault: null }))
    } catch (error) {
      const fault = faultOf(error)
      if (fault === null) throw error
      return sendPage(
        reply.code(422),
        auditPage({ ...shown, entries: [], names: new Map(), next: null, fault }),
      )
    }
  })
}
