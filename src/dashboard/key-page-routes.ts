import type { FastifyInstance } from 'fastify'
import { formOf } from './form.ts'
import { type Dashboard, type KeyParams, keyAt, PageMissing, sendPage, viewerOf } from './page.ts'
import { type KeyUse, keyPage } from './pages/key.ts'
import { keyDetail, rowsOf } from './queries.ts'
import { rangeIn, rangeOrFault, stepMs, timesOf } from './ranges.ts'
import { callsOfStep, type KeyUseRow, type UsageAsk, usagePoints, useByCapability } from './usage-queries.ts'
import { seriesOf } from './usage-series.ts'

export const keyPageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation

  pages.get<KeyParams>('/organizations/:organization/keys/:key', async (request, reply) => {
    const nowMs = Date.now()
    const { account, key } = await keyAt(context, request.params)
    const range = rangeIn(formOf({ range: '30d' }), { nowMs, newestMs: null })
    const of = { organizationId: account.organization_id, keyId: key.key_id }
    const query = request.query as object
    const isAsked = 'range' in query || 'from' in query
    const { range: used, fault } = await rangeOrFault(
      pool,
      isAsked ? query : { range: '7d' },
      of.organizationId,
    )
    const [[detail], points, use] = await Promise.all([
      rowsOf(pool, keyDetail(account.organization_id, key.key_id, nowMs)),
      rowsOf(pool, usagePoints({ ...range, ...of }, 'outcome')),
      useIn(context, { ...used, ...of }),
    ])
    if (detail === undefined) throw new PageMissing()
    const viewer = viewerOf(request, reply)
    const series = seriesOf(timesOf(range), points, range.step)
    const shown = { viewer, account, key: { ...key, ...detail }, series, atMs: nowMs }
    return sendPage(
      fault === null ? reply : reply.code(422),
      keyPage({ ...shown, use: { ...use, range: used, fault } }),
    )
  })
}

const useIn = async (
  { foundation: { pool } }: Dashboard,
  ask: UsageAsk,
): Promise<Pick<KeyUse, 'rows' | 'first' | 'last'>> => {
  const rows = await rowsOf(pool, useByCapability(ask))
  const steps = stepsOf(rows)
  if (steps.length === 0) return { rows, first: null, last: null }
  const callsIn = async (ms: number, end: 'first' | 'last') => {
    const hours =
      ask.step === 'day' && ms > Date.now() - hoursSureMs ? await rowsOf(pool, hoursOf(ask, ms)) : []
    const at = hours.length === 0 ? ms : Math[end === 'first' ? 'min' : 'max'](...stepsOf(hours))
    const step = hours.length === 0 ? ask.step : 'hour'
    return rowsOf(pool, callsOfStep({ ...ask, step }, new Date(at)))
  }
  const [[first], [last]] = await Promise.all([
    callsIn(Math.min(...steps), 'first'),
    callsIn(Math.max(...steps), 'last'),
  ])
  return { rows, first: first?.first ?? null, last: last?.last ?? null }
}

const stepsOf = (rows: readonly KeyUseRow[]): number[] =>
  rows.flatMap(({ first_step, last_step }) => [first_step.getTime(), last_step.getTime()])

/** Finds the hours of a day in which calls were made, because reading the lines of a busy key's whole day would take long. */
const hoursOf = (ask: UsageAsk, dayMs: number) =>
  useByCapability({ ...ask, step: 'hour', fromMs: dayMs, untilMs: dayMs + stepMs.day })
/** Hours are stored for 90 days, so every hour of a day that began within this time still exists. */
const hoursSureMs = 89 * stepMs.day
