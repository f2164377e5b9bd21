import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ulid } from 'ulid'
import { lastReconciliation } from '../administration/ledgers/reconciliations.ts'
import { CheckpointFault } from '../event-log/tree/checkpoints.ts'
import { mayOpen } from './access.ts'
import { type FirstAnswer, firstRunOf, makeFirstCall } from './first-run.ts'
import { formOf } from './form.ts'
import { figuresOfAll, lowOrganizations, todayFigures } from './overview.ts'
import { type Dashboard, PageMissing, sendPage, viewerOf } from './page.ts'
import { allUsagePage } from './pages/all-usage.ts'
import { overviewPage } from './pages/overview.ts'
import { rangeOrFault } from './pages/ranges.ts'
import { rowsOf } from './queries.ts'
import { timesOf } from './ranges.ts'
import { shownSoon } from './shown-soon.ts'
import { usagePoints, usageTotals } from './usage-queries.ts'
import { seriesOf } from './usage-series.ts'

export const overviewRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation, health, latency: latencyNow } = context
  const { pool, eventLog, checkpoints } = foundation
  const overview = async (request: FastifyRequest, reply: FastifyReply, answer: FirstAnswer | null) => {
    const viewer = viewerOf(request, reply)
    const nowMs = Date.now()
    const { range, fault } = await rangeOrFault(pool, request.query, null)
    const [latency, firstRun, today, { leaders, ...figures }, low, findings, checkpoint, reconciliation] =
      await Promise.all([
        latencyNow(),
        mayOpen(viewer.role, 'POST /first-call') ? firstRunOf(context, request) : null,
        todayFigures(pool, null, nowMs),
        figuresOfAll(pool, range),
        lowOrganizations(pool, nowMs),
        health.findings(),
        checkpoints.last().catch((error: unknown) => {
          if (error instanceof CheckpointFault) return { fault: `${error.message}.` }
          throw error
        }),
        lastReconciliation(eventLog),
      ])
    const shown = { range, fault, today, figures, leaders, low, findings, checkpoint, reconciliation, nowMs }
    const page = overviewPage({ ...shown, viewer, firstRun, answer, latency })
    return sendPage(fault === null ? reply : reply.code(422), page)
  }
  pages.get('/', (request, reply) => overview(request, reply, null))

  pages.post('/first-call', async (request, reply) => {
    const once = formOf(request.body).text('once')
    const answer = await makeFirstCall(context, request, /^[0-9A-Z]{26}$/.test(once) ? once : ulid())
    if (answer === null) throw new PageMissing()
    await shownSoon(context)
    return overview(request, reply, answer)
  })

  pages.get('/usage', async (request, reply) => {
    const { range, fault } = await rangeOrFault(pool, request.query, null)
    const ask = { ...range, organizationId: null, keyId: null }
    const [[total], byCapability, { series, leaders }] = await Promise.all([
      rowsOf(pool, usageTotals(ask)),
      rowsOf(pool, usagePoints(ask, 'capability')),
      figuresOfAll(pool, range),
    ])
    const shown = {
      range,
      fault,
      total,
      byCredits: leaders.byCredits,
      calls: series,
      credits: seriesOf(timesOf(range), byCapability, range.step),
    }
    const page = allUsagePage({ ...shown, viewer: viewerOf(request, reply) })
    return sendPage(fault === null ? reply : reply.code(422), page)
  })
}
