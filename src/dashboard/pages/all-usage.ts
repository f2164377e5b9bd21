import { count, credits } from '../format.ts'
import { type Html, html } from '../html.ts'
import { type Range, rangeQuery } from '../ranges.ts'
import type { OrganizationUseRow, UsageGroupRow } from '../usage-queries.ts'
import type { UsageSeries } from '../usage-series.ts'
import { type FormFault, faultNotice, figures, layout, type Viewer } from './layout.ts'
import { leadersTable } from './overview.ts'
import { usagePlot } from './plot.ts'
import { rangeFields } from './ranges.ts'

type AllUsageView = {
  readonly viewer: Viewer
  readonly range: Range
  readonly fault: FormFault | null
  readonly total: Omit<UsageGroupRow, 'name'> | undefined
  readonly calls: UsageSeries
  readonly credits: UsageSeries
  readonly byCredits: readonly OrganizationUseRow[]
}

export const allUsagePage = (view: AllUsageView): Html => {
  const { range, fault, total } = view
  return layout({
    title: 'Usage',
    at: '/usage',
    viewer: view.viewer,
    scripts: ['plots.js'],
    main: html`<h1>Usage of all organizations</h1>
<form class="filters" method="get" action="/usage">
${rangeFields(range, fault)}
<p class="actions"><button type="submit">Show</button></p>
</form>
${faultNotice(fault)}
${figures([
  ['Calls', html`<strong>${count(total?.calls ?? 0)}</strong>`],
  ['Answered', count(total?.answered ?? 0)],
  ['Refused', count(total?.refused ?? 0)],
  ['Failed', count(total?.failed ?? 0)],
  ['Rate limited', count(total?.rate_limited ?? 0)],
  ['Credits charged', credits(total?.charged_micro ?? '0')],
])}
<p class="note">Test organizations are not included.</p>
<p class="actions"><a href="/calls?${new URLSearchParams(rangeQuery(range)).toString()}">Calls in this range</a></p>
${usagePlot({ id: 'calls', title: 'Calls by outcome', of: 'calls', series: view.calls, range })}
${usagePlot({ id: 'credits', title: 'Credits by capability', of: 'credits', series: view.credits, range })}
${leadersTable('Organizations by credits', view.byCredits, {
  ...{ id: 'by-credits', path: 'usage', range, head: 'Charged' },
  cell: ({ charged_micro }) => credits(charged_micro),
})}`,
  })
}
