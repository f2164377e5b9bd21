import type { FastifyInstance } from 'fastify'
import { amount, csvOf, sendCsv } from './csv.ts'
import { type Form, formOf } from './form.ts'
import {
  accountAt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from './page.ts'
import { rangeAsked, rangeOrFault } from './pages/ranges.ts'
import { type UsageFigures, usagePage } from './pages/usage.ts'
import { type AccountRow, keysOf, rowsOf } from './queries.ts'
import { inDays, type Range, rangeQuery, timesOf } from './ranges.ts'
import {
  callsByCode,
  type UsageAsk,
  type UsageDimension,
  type UsageGroupRow,
  usageDimensions,
  usageGroups,
  usagePoints,
  usageTotals,
} from './usage-queries.ts'
import { seriesOf, type UsageSeries } from './usage-series.ts'
import { usedUpOf } from './used-up.ts'

const groupRowsMax = 500
const keysMax = 200
const codesMax = 100

type Asked = {
  readonly ask: UsageAsk
  readonly range: Range
  readonly by: UsageDimension
}

const askedIn = (form: Form, organizationId: string, asked: Range): Asked => {
  const by = usageDimensions.find((one) => one === form.text('by')) ?? 'outcome'
  // Usage by rule exists only by day.
  const range = by === 'rule' ? inDays(asked) : asked
  const key = form.text('key')
  return { range, by, ask: { ...range, organizationId, keyId: keyIdPattern.test(key) ? key : null } }
}

type Usage = {
  readonly series: UsageSeries
  readonly groups: readonly UsageGroupRow[]
  readonly unpaid: bigint
  readonly note: string | null
}

const usageOf = async ({ foundation: { pool } }: Dashboard, { ask, range, by }: Asked): Promise<Usage> => {
  const [rows, groups, codes] = await Promise.all([
    rowsOf(pool, usagePoints(ask, by)),
    rowsOf(pool, usageGroups(ask, by, groupRowsMax)),
    rowsOf(pool, callsByCode(ask, codesMax)),
  ])
  return {
    groups,
    series: seriesOf(timesOf(range), rows, range.step),
    unpaid: BigInt(codes.find(({ code }) => code === 'CREDIT_001')?.calls ?? 0),
    note:
      groups.length === groupRowsMax
        ? `The ${groupRowsMax} most expensive groups are listed; the figures cover all groups.`
        : null,
  }
}

const figuresOf = async (
  { foundation: { pool } }: Dashboard,
  account: AccountRow,
  { ask }: Asked,
  unpaid: bigint,
): Promise<UsageFigures> => {
  const [usedUp, [total]] = await Promise.all([
    usedUpOf(pool, account, Date.now()),
    rowsOf(pool, usageTotals(ask)),
  ])
  return {
    ...usedUp,
    calls: BigInt(total?.calls ?? 0),
    answered: BigInt(total?.answered ?? 0),
    rateLimited: BigInt(total?.rate_limited ?? 0),
    chargedMicro: BigInt(total?.charged_micro ?? 0),
    unpaid,
  }
}

export const usageRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const typed = formOf(request.query)
    const keys = await rowsOf(context.foundation.pool, keysOf(id, { max: keysMax, nowMs: Date.now() }))
    const { range, fault } = await rangeOrFault(context.foundation.pool, request.query, id)
    const view = { viewer: viewerOf(request, reply), account, typed, keys, fault }
    if (fault !== null) return sendPage(reply.code(422), usagePage({ ...view, range, shown: null }))
    const asked = askedIn(typed, id, range)
    const used = await usageOf(context, asked)
    const figures = await figuresOf(context, account, asked, used.unpaid)
    const shown = { ...used, ...asked, figures, query: queryOf(asked) }
    return sendPage(reply, usagePage({ ...view, range: asked.range, shown }))
  })
  csvRoute(pages, context)
}

const queryOf = ({ range, by, ask: { keyId } }: Asked): string =>
  new URLSearchParams({ ...rangeQuery(range), by, key: keyId ?? '' }).toString()

const csvRoute = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get<OrganizationParams>('/organizations/:organization/usage.csv', async (request, reply) => {
    const { organization_id: id } = await accountAt(context, request.params.organization)
    const form = formOf(request.query)
    const asked = askedIn(form, id, await rangeAsked(context.foundation.pool, form, id))
    const { series, groups } = await usageOf(context, asked)
    const text =
      form.text('table') === 'groups'
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
    return sendCsv(reply, `usage-${id}-${asked.range.name}`, text)
  })
}
