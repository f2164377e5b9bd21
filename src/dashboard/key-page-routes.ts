import type { FastifyInstance } from 'fastify'
import { changeLimits } from '../administration/keys/api-keys.ts'
import { limitFields, limitsOf } from '../administration/keys/key-request.ts'
import { provedOperator } from '../administration/operator.ts'
import { formOf } from './form.ts'
import {
  attemptOnce,
  type Dashboard,
  type KeyParams,
  keyAt,
  PageMissing,
  sendPage,
  viewerOf,
} from './page.ts'
import { keyPage } from './pages/key.ts'
import type { FormFault } from './pages/layout.ts'
import { keyDetail, rowsOf } from './queries.ts'
import { shownSoon } from './shown-soon.ts'
import { usageByDay } from './usage-queries.ts'
import { seriesOf, timesOf } from './usage-series.ts'

/** The page of one key, and the form on it. */

const dayMs = 86_400_000
const daysShown = 30

export const keyPageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation

  const viewOf = async (params: KeyParams['Params'], nowMs: number) => {
    const { account, key } = await keyAt(context, params)
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
    return { account, key: { ...key, ...detail }, series: seriesOf(timesOf(range), points), atMs: nowMs }
  }

  pages.get<KeyParams>('/organizations/:organization/keys/:key', async (request, reply) => {
    const view = await viewOf(request.params, Date.now())
    const limits = new Map(limitFields.map(({ field, limit }) => [field, String(view.key.limits[limit])]))
    const typed = (field: string): string => limits.get(field) ?? ''
    return sendPage(reply, keyPage({ viewer: viewerOf(request, reply), ...view, fault: null, typed }))
  })

  pages.post<KeyParams>('/organizations/:organization/keys/:key/limits', async (request, reply) => {
    const { account, key } = await keyAt(context, request.params)
    const viewer = viewerOf(request, reply)
    const outcome = await attemptOnce(context, request, (form) =>
      changeLimits(context.foundation, {
        keyId: key.key_id,
        limits: limitsOf(form.text),
        byPartner: viewer.role === 'partner',
        ...provedOperator(viewer.user),
      }),
    )
    if ('fault' in outcome) {
      const fault: FormFault = outcome.fault
      const view = await viewOf(request.params, Date.now())
      return sendPage(reply.code(422), keyPage({ viewer, ...view, fault, typed: formOf(request.body).text }))
    }
    await shownSoon(context, ['api_keys'])
    return reply.redirect(`/organizations/${account.organization_id}/keys/${key.key_id}#limits`, 303)
  })
}
