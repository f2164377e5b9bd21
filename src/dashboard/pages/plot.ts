import { instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { table } from './layout.ts'

/** A table by time that a script draws; without scripts, the table alone. */

/** One number: the raw value, for the plot, and as people read it. */
type PlotValue = { readonly value: string; readonly shown: string }

export const plot = ({
  id,
  title,
  unit,
  groups,
  points,
  csvHref,
}: {
  readonly id: string
  readonly title: string
  readonly unit: string
  readonly groups: readonly string[]
  readonly points: readonly { readonly at: string; readonly values: readonly PlotValue[] }[]
  readonly csvHref: string
}): Html => html`<figure class="plot" aria-labelledby="${id}">
<figcaption class="heading"><h2 id="${id}">${title}</h2>
<a href="${csvHref}">CSV<span class="unseen"> of ${title}</span></a></figcaption>
${
  groups.length === 0
    ? html`<p class="empty">Nothing was used in this time.</p>`
    : html`<div class="chart" aria-hidden="true" hidden></div>
<details open><summary>${title} as a table</summary>
${table({
  caption: `${title}, ${unit}`,
  rows: points,
  columns: [
    { head: 'Time (UTC)', kind: 'name', cell: ({ at }) => timeOf(at) },
    ...groups.map((head, i) => ({
      head,
      kind: 'number' as const,
      cell: ({ values }: { readonly values: readonly PlotValue[] }) => numberOf(values[i]),
    })),
  ],
})}
</details>`
}
</figure>`

const timeOf = (at: string): Html =>
  at.length === 10 ? html`<time datetime="${at}">${at}</time>` : instant(new Date(at))

const numberOf = (one: PlotValue | undefined): Renderable =>
  one !== undefined && html`<data value="${one.value}">${one.shown}</data>`
