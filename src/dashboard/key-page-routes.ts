import type { FastifyInstance } from 'fastify'
import { type Dashboard, type KeyParams, keyAt, PageMissing, sendPage, viewerOf } from './page.ts'
import { keyPage } from './pages/key.ts'
import { keyDetail, rowsOf } from './queries.ts'
import { usageByDay } from './usage-queries.ts'
import { seriesOf, timesOf } from './usage-series.ts'

/** The page of one key. */

const dayMs = 86_400_000
const daysShown = 30

export const keyPageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation

  pages.get<KeyParams>('/organizations/:organization/keys/:key', async (request, reply) => {
    const nowMs = Date.now()
    const { account, key } = await keyAt(context, request.params)
    const range = {
      from: new Date(nowMs - (daysShown - 1) * dayMs).toISOString().slice(0, 10),
      to: new Date(nowMs).toISOString().slice(0, 10),
      unit: 'day',
    } as const
    const [[detail], points] = await Promise.all([
      rowsOf(pool, keyDetail(account.organization_id, key.key_id, nowMs)),
      rowsOf(pool, usageByDay(account.organization_id, { ...range, by: 'outcome', keyId: key.key_id })),
    ])
    if (detail === undefined) throw new PageMissing()
    const viewer = viewerOf(request, reply)
    const series = seriesOf(timesOf(range), points)
    return sendPage(reply, keyPage({ viewer, account, key: { ...key, ...detail }, series, atMs: nowMs }))
  })
}
