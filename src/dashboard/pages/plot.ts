import { capitalized, count, credits, instant, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { Range } from '../ranges.ts'
import type { UsageSeries } from '../usage-series.ts'
import { table } from './layout.ts'

/** A table by time. A script also draws it as a plot. */

/** A number as a raw value for the plot, and as text for people. */
type PlotValue = { readonly value: string; readonly shown: string }

export const plot = ({
  id,
  title,
  unit,
  groups,
  points,
  csvHref,
  zooms = false,
  colors,
}: {
  readonly id: string
  readonly title: string
  readonly unit: string
  readonly groups: readonly string[]
  readonly points: readonly { readonly at: string; readonly values: readonly PlotValue[] }[]
  readonly csvHref: string | null
  /** Whether people can open the page for a time range by dragging over the plot. */
  readonly zooms?: boolean
  /** The number of each group's colour. By default, groups are coloured in their order. */
  readonly colors?: readonly number[]
}): Html => html`<figure class="plot" aria-labelledby="${id}" data-unit="${unit}"${zooms && html` data-zoom`}${colors !== undefined && html` data-colors="${colors.join(' ')}"`}>
<figcaption class="heading"><h2 id="${id}">${title}</h2>
${csvHref !== null && html`<a href="${csvHref}">CSV<span class="unseen"> of ${title}</span></a>`}</figcaption>
${
  groups.length === 0
    ? html`<p class="empty">No ${unit} in this range.</p>`
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

/** The name of a group of usage. Calls that a rate limit refused are not counted by capability. */
export const groupWords = (name: string): string => (name === 'any' ? 'rate limited' : words(name))

/** A plot of the calls or credits of a series. */
export const usagePlot = ({
  id,
  title,
  of,
  series,
  range,
  nameOf = (name) => (name === null ? 'all others' : groupWords(name)),
  csvHref = null,
}: {
  readonly id: string
  readonly title: string
  readonly of: 'calls' | 'credits'
  readonly series: UsageSeries
  readonly range: Range
  readonly nameOf?: (name: string | null) => string
  readonly csvHref?: string | null
}): Html => {
  const used = usedGroups(series, of)
  const { points } = series
  return plot({
    id,
    title: `${capitalized(title)} per ${range.step}`,
    unit: of === 'calls' ? 'calls' : 'credits charged',
    groups: used.map((i) => nameOf(series.groups[i] ?? null)),
    // A group has the same colour in the plots of calls and of credits.
    colors: used.map((i) => i + 1),
    csvHref,
    zooms: true,
    points: points.map(({ at, calls, chargedMicro }) => ({
      at,
      values:
        of === 'calls'
          ? used.map((i) => ({ value: String(calls[i]), shown: count(calls[i] ?? 0n) }))
          : used.map((i) => {
              const shown = credits(String(chargedMicro[i]))
              return { value: shown.replaceAll(',', ''), shown }
            }),
    })),
  })
}

/** The indexes of the groups that are not zero at least once. */
const usedGroups = ({ groups, points }: UsageSeries, of: 'calls' | 'credits'): number[] =>
  [...groups.keys()].filter((i) =>
    points.some(({ calls, chargedMicro }) => (of === 'calls' ? calls : chargedMicro)[i] !== 0n),
  )

const timeOf = (at: string): Html =>
  at.length === 10 ? html`<time datetime="${at}">${at}</time>` : instant(new Date(at))

const numberOf = (one: PlotValue | undefined): Renderable =>
  one !== undefined && html`<data value="${one.value}">${one.shown}</data>`
