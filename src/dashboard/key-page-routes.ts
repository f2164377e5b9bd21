import type { FastifyInstance } from 'fastify'
import { formOf } from './form.ts'
import { type Dashboard, type KeyParams, keyAt, PageMissing, sendPage, viewerOf } from './page.ts'
import { keyPage } from './pages/key.ts'
import { keyDetail, rowsOf } from './queries.ts'
import { rangeIn, timesOf } from './ranges.ts'
import { usagePoints } from './usage-queries.ts'
import { seriesOf } from './usage-series.ts'

/** The page of one key. */

export const keyPageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation

  pages.get<KeyParams>('/organizations/:organization/keys/:key', async (request, reply) => {
    const nowMs = Date.now()
    const { account, key } = await keyAt(context, request.params)
    const range = rangeIn(formOf({ range: '30d' }), { nowMs, newestMs: null })
    const ask = { ...range, organizationId: account.organization_id, keyId: key.key_id }
    const [[detail], points] = await Promise.all([
      rowsOf(pool, keyDetail(account.organization_id, key.key_id, nowMs)),
      rowsOf(pool, usagePoints(ask, 'outcome')),
    ])
    if (detail === undefined) throw new PageMissing()
    const viewer = viewerOf(request, reply)
    const series = seriesOf(timesOf(range), points, range.step)
    return sendPage(reply, keyPage({ viewer, account, key: { ...key, ...detail }, series, atMs: nowMs }))
  })
}
