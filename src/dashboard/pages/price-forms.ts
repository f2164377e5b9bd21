import type { ComparedCosts } from '../../administration/prices/price-diff.ts'
import type { RuleChange } from '../../billing/price-rules.ts'
import type { PriceBookRule } from '../../events/prices.ts'
import { count, credits, movement } from '../format.ts'
import { type Html, html } from '../html.ts'
import { described, type FormFault, faultNotice, formFields, layout, table, type Viewer } from './layout.ts'
import { type Names, organizationLink } from './organization-link.ts'

/** The forms that propose and withdraw prices, and the cost of a month under other prices. */

const frame = (viewer: Viewer, title: string, main: Html): Html =>
  layout({
    title,
    viewer,
    at: '/prices',
    main: html`<p class="eyebrow"><a href="/prices">Prices</a></p>
<h1>${title}</h1>
${main}`,
  })

export const proposePage = ({
  viewer,
  rules,
  typed,
  fault,
}: {
  readonly viewer: Viewer
  /** From the book in force, with the amounts as typed. */
  readonly rules: readonly PriceBookRule[]
  readonly typed: (name: string) => string
  readonly fault: FormFault | null
}): Html =>
  frame(
    viewer,
    'Propose prices',
    html`${faultNotice(fault)}
<p>A proposal prices nothing until it is approved. Change the amounts that are to be others, from an instant on.</p>
<form class="fields" method="post" action="/prices/new">
${formFields(viewer)}
<div class="pair">
<p><label for="from">From (UTC)</label>
<input id="from" name="from" value="${typed('from')}" required maxlength="40" autocomplete="off"${described('from', fault, 'from-hint')}>
<small id="from-hint">Such as 2027-01-01T00:00:00Z.</small></p>
<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${typed('reason')}" required maxlength="200" autocomplete="off"${described('reason', fault)}></p>
</div>
${table({
  caption: 'Rules, with the credits they charge',
  rows: rules,
  columns: [
    { head: 'Rule', kind: 'name', cell: ({ rule, rule_version }) => `${rule} v${rule_version}` },
    { head: 'SKU', cell: ({ sku }) => sku ?? 'free' },
    {
      head: 'Credits',
      kind: 'number',
      cell: ({ rule, sku, amount }) =>
        sku === null
          ? '0'
          : html`<input class="amount" name="amount ${rule}" value="${typed(`amount ${rule}`) || amount}" inputmode="decimal" maxlength="20" required autocomplete="off" aria-label="Credits of ${rule}">`,
    },
  ],
})}
<p class="actions"><button type="submit">Propose</button> <a href="/prices">Cancel</a></p>
</form>`,
  )

export const withdrawPage = ({
  viewer,
  name,
  what,
  from,
  reason,
  fault,
}: {
  readonly viewer: Viewer
  readonly name: string
  readonly what: string
  readonly from: string
  readonly reason: string
  readonly fault: FormFault | null
}): Html =>
  frame(
    viewer,
    `Withdraw ${what}`,
    html`${faultNotice(fault)}
<p>Of ${what}, dated ${from}, nothing will ever be priced. It can be proposed again.</p>
<form class="fields narrow" method="post" action="/prices/${name}/withdraw">
${formFields(viewer)}
<p><label for="reason">Reason</label>
<input id="reason" name="reason" value="${reason}" required maxlength="200" autocomplete="off"${described('reason', fault)}></p>
<p class="actions"><button class="danger" type="submit">Withdraw ${what}</button> <a href="/prices">Cancel</a></p>
</form>`,
  )

type CostView = {
  readonly proposal: number
  readonly base: string
  readonly month: string
  readonly changes: readonly RuleChange[]
  readonly organizations: readonly ({ readonly organizationId: string } & ComparedCosts)[]
  readonly sum: ComparedCosts
  readonly names: Names
}

/** Organizations per page. */
export const costsShownMax = 200

export const costPage = (
  viewer: Viewer,
  { proposal, base, month, organizations, sum, names }: CostView,
): Html =>
  frame(
    viewer,
    `What ${month} would have cost under p${proposal}`,
    html`<p class="note">The calls of ${month} (UTC), rated under ${base} and under p${proposal}, with the organizations' own prices as they are set today. Nothing was charged.</p>
<form class="filters" method="get" action="/prices/p${proposal}/cost">
<p><label for="month">Month</label><input id="month" name="month" type="month" value="${month}" required></p>
<p class="actions"><button type="submit">Show</button></p>
</form>
${
  organizations.length === 0
    ? html`<p class="empty">No calls were made in ${month}.</p>`
    : table({
        caption: `What ${month} would have cost, by organization`,
        rows: [...organizations.slice(0, costsShownMax), { organizationId: 'all', ...sum }],
        columns: [
          {
            head: 'Organization',
            kind: 'name',
            cell: ({ organizationId: id }) => (id === 'all' ? 'All' : organizationLink(id, names)),
          },
          { head: 'Calls', kind: 'number', cell: ({ from }) => count(from.calls) },
          { head: `Under ${base}`, kind: 'number', cell: ({ from }) => credits(String(from.total)) },
          { head: `Under p${proposal}`, kind: 'number', cell: ({ to }) => credits(String(to.total)) },
          {
            head: 'Difference',
            kind: 'number',
            cell: ({ from, to }) => movement(String(to.total - from.total)),
          },
          { head: 'Refused then', kind: 'number', cell: ({ to }) => count(to.unrated) },
        ],
      })
}
${organizations.length > costsShownMax && html`<p class="note">The first ${costsShownMax} organizations are shown; all of them are in the sum.</p>`}`,
  )
