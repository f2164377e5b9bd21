import type { FastifyInstance } from 'fastify'
import { provedOperator } from '../administration/operator.ts'
import { closeBreakers, mailServers } from '../capabilities/index.ts'
import { formOf } from './form.ts'
import { attemptOnce, type Dashboard, sendPage, viewerOf } from './page.ts'
import type { FormFault, Viewer } from './pages/layout.ts'
import { mailboxesPage } from './pages/mailboxes.ts'

/** What the processes know of mail servers, and that they ask one again. */

const shownMax = 200
const path = '/operations/mailboxes'

export const mailboxRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  const pageOf = async (
    viewer: Viewer,
    shown: { readonly find: string; readonly closed: string; readonly fault: FormFault | null },
  ) => {
    const found = await mailServers(foundation.pool, { search: shown.find, max: shownMax + 1 })
    return mailboxesPage({
      ...{ viewer, ...shown },
      servers: found.slice(0, shownMax),
      more: found.length > shownMax,
    })
  }

  pages.get(path, async (request, reply) => {
    const query = formOf(request.query)
    const shown = { find: named(query.text('find')), closed: named(query.text('closed')), fault: null }
    return sendPage(reply, await pageOf(viewerOf(request, reply), shown))
  })

  pages.post(`${path}/close`, async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      closeBreakers(foundation, form.text('server'), {
        ...provedOperator(viewer.user),
        once: `${viewer.user} ${form.text('once')}`,
      }),
    )
    if ('done' in outcome) {
      const server = named(formOf(request.body).text('server'))
      return reply.redirect(`${path}?closed=${encodeURIComponent(server)}`, 303)
    }
    const { fault } = outcome
    return sendPage(reply.code(422), await pageOf(viewer, { find: '', closed: '', fault }))
  })
}

/** What no name holds is not asked for: PostgreSQL refuses a text with U+0000. */
const named = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^!-~]/g, '')
    .slice(0, 253)
