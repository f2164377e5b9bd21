import type { FastifyInstance } from 'fastify'
import { InputFault } from '../administration/input.ts'
import { usedUpAtMs } from './burn.ts'
import { csvOf } from './csv.ts'
import { type Form, faultOf, formOf } from './form.ts'
import { credits } from './format.ts'
import { linePlaces } from './line-places.ts'
import {
  accountAt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import { type UsageFigures, usagePage } from './pages/usage.ts'
import { type AccountRow, keysOf, lotsOf, rowsOf } from './queries.ts'
import {
  burned,
  type LinePlaces,
  type UsageGroupRow,
  type UsageRange,
  unpaidCalls,
  usageByDay,
  usageByHour,
  usageDimensions,
  usageGroups,
  usageTotals,
} from './usage-queries.ts'
import { seriesOf, timesOf, type UsageSeries } from './usage-series.ts'

/** An organization's usage, as a page and as CSV. */

const dayMs = 86_400_000
const daysMax = 366
const hourDaysMax = 7
/** Lines read for one page. Beyond this, hours are not shown, and refusals for lack of credits are not counted. */
const linesMax = 500_000n
const groupRowsMax = 500
const keysMax = 200
const lotsMax = 1_000

/** `isCut`: hours of the last days of the range alone. */
type Asked = UsageRange & { readonly unit: 'day' | 'hour'; readonly isCut: boolean }

const dayOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10)

/** The default range: the last thirty days. */
const filled = (query: unknown, nowMs: number): Form => {
  const given = formOf(query)
  const text = (name: string, otherwise: string): string => given.text(name) || otherwise
  return formOf({
    from: text('from', dayOf(nowMs - 29 * dayMs)),
    to: text('to', dayOf(nowMs)),
    by: text('by', 'outcome'),
    unit: text('unit', 'day'),
    key: given.text('key'),
  })
}

const dayIn = (form: Form, field: string): string => {
  const text = form.text(field).trim()
  const ms = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(ms) || dayOf(ms) !== text)
    throw new InputFault(field, `"${text}" is not a day such as 2026-11-21`)
  return text
}

/** Throws `InputFault`. */
const askedIn = (form: Form): Asked => {
  const [asked, to] = [dayIn(form, 'from'), dayIn(form, 'to')]
  const days = (Date.parse(to) - Date.parse(asked)) / dayMs + 1
  if (days < 1) throw new InputFault('to', `${to} is before ${asked}`)
  if (days > daysMax) throw new InputFault('from', `at most ${daysMax} days are shown; these are ${days}`)
  const unit = form.text('unit') === 'hour' ? 'hour' : 'day'
  const isCut = unit === 'hour' && days > hourDaysMax
  const key = form.text('key')
  return {
    from: isCut ? dayOf(Date.parse(to) - (hourDaysMax - 1) * dayMs) : asked,
    to,
    unit,
    isCut,
    by: usageDimensions.find((one) => one === form.text('by')) ?? 'outcome',
    keyId: keyIdPattern.test(key) ? key : null,
  }
}

type Usage = {
  readonly series: UsageSeries
  readonly groups: readonly UsageGroupRow[]
  readonly unit: 'day' | 'hour'
  readonly unpaid: bigint | null
  readonly note: string | null
}

const usageOf = async (
  { foundation: { pool } }: Dashboard,
  organizationId: string,
  asked: Asked,
): Promise<Usage> => {
  const places = await linePlaces(pool, organizationId, {
    fromMs: Date.parse(asked.from),
    untilMs: Date.parse(asked.to) + dayMs,
  })
  const few = places !== null && BigInt(places.last) - BigInt(places.first) <= linesMax
  const hours: LinePlaces | null = asked.unit === 'hour' && few ? places : null
  const [rows, groups, unpaid] = await Promise.all([
    rowsOf(
      pool,
      hours === null ? usageByDay(organizationId, asked) : usageByHour(organizationId, asked, hours),
    ),
    rowsOf(pool, usageGroups(organizationId, asked, groupRowsMax)),
    few ? rowsOf(pool, unpaidCalls(organizationId, asked, places)) : null,
  ])
  const unit = asked.unit === 'hour' && places !== null && !few ? 'day' : asked.unit
  return {
    groups,
    unit,
    series: seriesOf(timesOf({ ...asked, unit }), rows),
    unpaid: unpaid === null ? (places === null ? 0n : null) : BigInt(unpaid[0]?.calls ?? 0),
    note: noteOf(asked, { byDay: unit !== asked.unit, cut: groups.length === groupRowsMax }),
  }
}

const noteOf = (
  { isCut, from }: Asked,
  { byDay, cut }: { readonly byDay: boolean; readonly cut: boolean },
): string | null => {
  if (byDay) return `There are more than ${linesMax} lines in these days: they are shown by day.`
  if (isCut) return `Hours are shown of at most ${hourDaysMax} days: these are the days from ${from} on.`
  return cut ? `The ${groupRowsMax} groups that cost most are listed; the figures are of all.` : null
}

const figuresOf = async (
  { foundation: { pool } }: Dashboard,
  account: AccountRow,
  asked: Asked,
  unpaid: bigint | null,
): Promise<UsageFigures> => {
  const nowMs = Date.now()
  const [lots, [rate], [total]] = await Promise.all([
    rowsOf(pool, lotsOf(account.organization_id, { max: lotsMax, nowMs })),
    rowsOf(pool, burned(account.organization_id, nowMs)),
    rowsOf(pool, usageTotals(account.organization_id, asked)),
  ])
  const perDayMicro = rate === undefined ? null : BigInt(rate.charged_micro) / BigInt(Math.max(1, rate.days))
  const drawable = lots.filter(({ past_expiry }) => !past_expiry)
  const left = drawable.reduce((all, lot) => all + BigInt(lot.remaining_micro), 0n)
  return {
    calls: BigInt(total?.calls ?? 0),
    answered: BigInt(total?.answered ?? 0),
    rateLimited: BigInt(total?.rate_limited ?? 0),
    chargedMicro: BigInt(total?.charged_micro ?? 0),
    unpaid,
    perDayMicro,
    usedUpAtMs:
      perDayMicro === null
        ? null
        : usedUpAtMs(
            drawable.map(({ remaining_micro, expires_at }) => ({
              remainingMicro: BigInt(remaining_micro),
              expiresAtMs: expires_at?.getTime() ?? null,
            })),
            { perDayMicro, overdrawnMicro: left - BigInt(account.balance_micro), nowMs },
          ),
  }
}

export const usageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const typed = filled(request.query, Date.now())
    const keys = await rowsOf(context.foundation.pool, keysOf(id, { max: keysMax, nowMs: Date.now() }))
    const view = { viewer: viewerOf(request, reply), account, typed, keys }
    let asked: Asked
    try {
      asked = askedIn(typed)
    } catch (error) {
      const fault = faultOf(error)
      if (fault === null) throw error
      return sendPage(reply.code(422), usagePage({ ...view, fault, shown: null }))
    }
    const used = await usageOf(context, id, asked)
    const shown = {
      ...used,
      by: asked.by,
      figures: await figuresOf(context, account, asked, used.unpaid),
      query: queryOf(asked),
    }
    const { keyId, isCut: _, ...values } = asked
    const typedAsShown = formOf({ ...values, key: keyId ?? '' })
    return sendPage(reply, usagePage({ ...view, typed: typedAsShown, fault: null, shown }))
  })
  csvRoute(pages, context)
}

const queryOf = ({ from, to, by, unit, keyId }: Asked): string =>
  new URLSearchParams({ from, to, by, unit, key: keyId ?? '' }).toString()

const csvRoute = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage.csv', async (request, reply) => {
    const { organization_id: id } = await accountAt(context, request.params.organization)
    const asked = askedIn(filled(request.query, Date.now()))
    const { series, groups } = await usageOf(context, id, asked)
    const amount = (micro: bigint | string) => ({ number: credits(String(micro)).replaceAll(',', '') })
    const table = formOf(request.query).text('table')
    const text =
      table === 'groups'
        ? csvOf(
            [asked.by, 'calls', 'answered', 'refused', 'failed', 'rate_limited', 'credits'],
            groups.map((row) => [
              row.name,
              ...[row.calls, row.answered, row.refused, row.failed, row.rate_limited].map((number) => ({
                number,
              })),
              amount(row.charged_micro),
            ]),
          )
        : csvOf(
            ['time_utc', asked.by, 'calls', 'credits'],
            series.points.flatMap(({ at, calls, chargedMicro }) =>
              series.groups.map((name, i) => [
                at,
                name ?? '(all others)',
                { number: String(calls[i] ?? 0n) },
                amount(chargedMicro[i] ?? 0n),
              ]),
            ),
          )
    return reply
      .type('text/csv; charset=utf-8')
      .header('cache-control', 'no-store')
      .header('content-disposition', `attachment; filename="usage-${id}-${asked.from}-${asked.to}.csv"`)
      .send(text)
  })
}
