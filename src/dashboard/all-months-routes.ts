import type { FastifyInstance } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { closableAt, monthOf } from '../administration/months/statements.ts'
import { type Month, monthAfter, monthBefore } from '../billing/months.ts'
import { amount, csvOf, sendCsv } from './csv.ts'
import { formOf } from './form.ts'
import { type MonthUseRow, monthUse, openOrganizations } from './month-queries.ts'
import { attempt, type Dashboard, organizationPattern, sendPage, viewerOf } from './page.ts'
import { allMonthsPage } from './pages/all-months.ts'
import { rowsOf } from './queries.ts'

const shownMax = 100
/** Keeps a file small enough for spreadsheet programs. */
const csvRowsMax = 50_000
const csvPage = 1_000
/** No call can be older, because Unix time begins in 1970. */
const firstMonth = '1970-02'

/** Throws `InputFault` if the text is not a month that has begun. */
const wantedMonth = (text: string, nowMs: number): Month => {
  const month = monthOf('month', text)
  if (month < firstMonth || Date.parse(`${month}-01`) > nowMs)
    throw new InputFault('month', `${month} has not begun, or is too long ago`)
  return month
}

const currentMonth = (nowMs: number): Month => new Date(nowMs).toISOString().slice(0, 7)

const daysOf = (month: Month) => ({
  before: `${monthBefore(month)}-01`,
  month: `${month}-01`,
  next: `${monthAfter(month)}-01`,
})

export const allMonthsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context

  const shownOf = async (month: Month, after: string, nowMs: number) => {
    const [found, [state]] = await Promise.all([
      rowsOf(foundation.pool, monthUse(daysOf(month), { after, max: shownMax + 1 })),
      rowsOf(foundation.pool, openOrganizations(month, daysOf(month).next)),
    ])
    const rows = found.slice(0, shownMax)
    return {
      month,
      before: monthBefore(month),
      rows,
      further: after !== '',
      next: found.length > rows.length ? (rows.at(-1)?.organization_id ?? null) : null,
      open: state?.open ?? 0,
      anyClosed: state?.any_closed ?? false,
      closableAtMs: closableAt(month),
      atMs: nowMs,
    }
  }

  pages.get('/months', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const query = formOf(request.query)
    const nowMs = Date.now()
    const typed = query.text('month') || currentMonth(nowMs)
    const asked = await attempt(async () => wantedMonth(typed, nowMs))
    if ('fault' in asked)
      return sendPage(reply.code(422), allMonthsPage({ viewer, typed: '', fault: asked.fault, shown: null }))
    const after = query.text('after')
    const shown = await shownOf(asked.done, organizationPattern.test(after) ? after : '', nowMs)
    return sendPage(reply, allMonthsPage({ viewer, typed: asked.done, fault: null, shown }))
  })

  pages.get('/months.csv', async (request, reply) => {
    const nowMs = Date.now()
    const month = wantedMonth(formOf(request.query).text('month') || currentMonth(nowMs), nowMs)
    return sendCsv(reply, `months-${month}`, csvOfMonth(await allUse(context, month)))
  })
}

/** The usage of every organization. Throws `InputFault` if there are too many organizations for a file. */
const allUse = async ({ foundation: { pool } }: Dashboard, month: Month): Promise<MonthUseRow[]> => {
  const rows: MonthUseRow[] = []
  for (let after = ''; rows.length <= csvRowsMax; ) {
    const page = await rowsOf(pool, monthUse(daysOf(month), { after, max: csvPage }))
    rows.push(...page)
    if (page.length < csvPage) return rows
    after = page.at(-1)?.organization_id ?? ''
  }
  throw new InputFault('month', `there are more than ${csvRowsMax} organizations, the maximum for a file`)
}

const csvOfMonth = (rows: readonly MonthUseRow[]): string =>
  csvOf(
    ['organization_id', 'name', 'calls', 'calls_before', 'charged', 'charged_before'],
    rows.map((row) => [
      ...[row.organization_id, row.name],
      ...[{ number: row.calls }, { number: row.calls_before }],
      ...[amount(row.charged_micro), amount(row.charged_before_micro)],
    ]),
  )
