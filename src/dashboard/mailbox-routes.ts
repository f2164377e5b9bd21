import type { FastifyInstance } from 'fastify'
import { mailServers } from '../capabilities/index.ts'
import { formOf } from './form.ts'
import { type Dashboard, sendPage, viewerOf } from './page.ts'
import { mailboxesPage } from './pages/mailboxes.ts'

/** What the processes know of mail servers. */

const shownMax = 200

export const mailboxRoutes = (pages: FastifyInstance, { foundation: { pool } }: Dashboard): void => {
  pages.get('/operations/mailboxes', async (request, reply) => {
    // What no name holds is not asked for: PostgreSQL refuses a text with U+0000.
    const find = formOf(request.query)
      .text('find')
      .toLowerCase()
      .replaceAll(/[^!-~]/g, '')
      .slice(0, 253)
    const found = await mailServers(pool, { search: find, max: shownMax + 1 })
    const viewer = viewerOf(request, reply)
    const more = found.length > shownMax
    return sendPage(reply, mailboxesPage({ viewer, servers: found.slice(0, shownMax), more, find }))
  })
}
