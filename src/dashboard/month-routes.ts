import { strict as assert } from 'node:assert'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { closableAt, monthOf, monthStatement, monthsOf } from '../administration/months/statements.ts'
import { formatCredits } from '../billing/money.ts'
import { type Month, monthBefore } from '../billing/months.ts'
import { csv, jsonLines } from '../billing/statement-file.ts'
import { streamed } from '../call/streamed.ts'
import { count } from './format.ts'
import { useByMonth } from './month-queries.ts'
import {
  accountAt,
  askerOf,
  type Dashboard,
  type OrganizationParams,
  PageMissing,
  sendPage,
  viewerOf,
} from './page.ts'
import { monthPage } from './pages/month.ts'
import { type MonthLine, monthsPage } from './pages/months.ts'
import { workPage } from './pages/work.ts'
import { rowsOf } from './queries.ts'
import { createPlaces } from './works.ts'

type MonthParams = { Params: { organization: string; month: string } }

const monthAt = (text: string): Month => {
  try {
    return monthOf('month', text)
  } catch (error) {
    if (error instanceof InputFault) throw new PageMissing()
    throw error
  }
}

/** The time for which a request waits for the result before the page shows the progress instead. */
const waitMs = 1_500

/** Returns the result if it is ready soon. Otherwise sends a page that shows the progress. */
const soonOr = async <Result>(
  { works }: Dashboard,
  {
    request,
    reply,
    ...asked
  }: {
    readonly request: FastifyRequest
    readonly reply: FastifyReply
    readonly key: string
    readonly title: string
    readonly run: (progress: (text: string) => void) => Promise<Result>
  },
): Promise<{ result: Result } | { sent: FastifyReply }> => {
  const { standing } = request
  assert(standing !== null)
  // A user with a changed role or organization can no longer open earlier results.
  const owner = JSON.stringify([standing.user, standing.role, standing.organizationId])
  const outcome = await works.soon({ ...asked, owner, asker: askerOf(request) }, waitMs)
  if ('result' in outcome) return outcome
  request.asksByItself = true
  const { title, startedAtMs, progress } = outcome.work
  const view = { title, since: new Date(startedAtMs), progress, path: request.url }
  return { sent: sendPage(reply, workPage({ viewer: viewerOf(request, reply), ...view })) }
}

const eventsRead = (events: number): string => `${count(events)} events of the ledger have been read.`

export const monthRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  pages.get<OrganizationParams>('/organizations/:organization/months', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const outcome = await soonOr(context, {
      request,
      reply,
      key: `months/${id}`,
      title: `Months of ${account.name}`,
      run: (progress) => monthsOf(foundation, id, { onProgress: (events) => progress(eventsRead(events)) }),
    })
    if ('sent' in outcome) return outcome.sent
    const lines = linesOf(outcome.result)
    const oldest = lines.findLast(({ closed }) => !closed)?.month ?? null
    const use = oldest === null ? [] : await rowsOf(foundation.pool, useByMonth(id, `${oldest}-01`))
    const months = lines.map((line): MonthLine => {
      const own = line.closed ? undefined : use.find(({ month }) => month === line.month)
      if (line.closed) return line
      const charged = formatCredits(BigInt(own?.charged_micro ?? 0))
      return { ...line, totals: { charged, calls: Number(own?.calls ?? 0) } }
    })
    return sendPage(reply, monthsPage({ viewer: viewerOf(request, reply), account, months }))
  })

  pages.get<MonthParams>('/organizations/:organization/months/:month', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const month = monthAt(request.params.month)
    const nowMs = Date.now()
    if (Date.parse(`${month}-01`) > nowMs) throw new PageMissing()
    const outcome = await soonOr(context, {
      request,
      reply,
      key: `month/${id}/${month}`,
      title: `${account.name} in ${month}`,
      run: async (progress) => {
        const of = (one: Month) =>
          monthStatement(foundation, {
            organizationId: id,
            month: one,
            nowMs,
            file: null,
            onProgress: (events) => progress(eventsRead(events)),
          })
        return { now: await of(month), before: await of(monthBefore(month)) }
      },
    })
    if ('sent' in outcome) return outcome.sent
    const view = { account, month, ...outcome.result, closableAtMs: closableAt(month), atMs: nowMs }
    return sendPage(reply, monthPage({ viewer: viewerOf(request, reply), ...view }))
  })

  fileRoutes(pages, context)
}

/** The months, newest first. */
const linesOf = ({ closed, open }: Awaited<ReturnType<typeof monthsOf>>): MonthLine[] => {
  let balance = open.start.opening
  const lines = [...open.sums]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([month, { net }]): MonthLine => {
      const opening = balance
      balance += net
      const closing = open.closings.find((one) => one.month >= month) ?? null
      const totals = closing?.month === month ? closing.closed.totals : null
      return {
        month,
        totals,
        closed: closing !== null,
        opening: formatCredits(opening),
        closing: formatCredits(balance),
      }
    })
  return [
    ...lines.reverse(),
    ...closed.map(({ month, closed: { totals } }) => ({
      month,
      totals,
      closed: true,
      opening: totals.opening,
      closing: totals.closing,
    })),
  ]
}

/** The maximum number of concurrent downloads in this process. It is low, because each download reads a ledger from its start. */
const downloadsMax = 4

const fileRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const enter = createPlaces(downloadsMax)
  const forms = [
    { ending: 'csv', form: csv, type: 'text/csv; charset=utf-8' },
    { ending: 'jsonl', form: jsonLines, type: 'application/jsonl; charset=utf-8' },
  ]
  for (const { ending, form, type } of forms)
    pages.get<MonthParams>(
      `/organizations/:organization/months/:month/statement.${ending}`,
      async (request, reply) => {
        const { organization_id: organizationId } = await accountAt(context, request.params.organization)
        const month = monthAt(request.params.month)
        const nowMs = Date.now()
        if (Date.parse(`${month}-01`) > nowMs) throw new PageMissing()
        const leave = enter(askerOf(request))
        if (leave === null)
          return reply
            .code(503)
            .header('retry-after', 10)
            .type('text/plain')
            .send('Too many statements are being written. Try again in a moment.\n')
        const body = streamed((write) =>
          monthStatement(context.foundation, { organizationId, month, nowMs, file: { form, write } })
            .catch((error: unknown) => {
              if (!body.destroyed) context.logger.warn({ err: error, month }, 'a statement was not written')
              throw error
            })
            .then(() => undefined)
            .finally(leave),
        )
        return reply
          .type(type)
          .header('cache-control', 'no-store')
          .header('content-disposition', `attachment; filename="${organizationId}-${month}.${ending}"`)
          .send(body)
      },
    )
}
