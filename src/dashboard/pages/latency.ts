import { count, words } from '../format.ts'
import { type Html, html } from '../html.ts'
import { beyondMs, type LatencySeries, msText, percentileNames } from '../latency.ts'
import { table } from './layout.ts'
import { plot } from './plot.ts'

/** How long calls took: percentiles by capability for the whole time, and a plot of each. */

export const latencySection = (
  latency: readonly LatencySeries[],
  { unit, csvHref }: { readonly unit: 'day' | 'hour'; readonly csvHref: string },
): Html => html`<section aria-labelledby="latency">
<h2 id="latency">Latency</h2>
<p class="note">From arrival to answer, of all keys, refused calls left out. Counted by each process and written once a minute: figures of operation, which are in no bill. Kept for 35 days.</p>
${
  latency.length === 0
    ? html`<p class="empty">No call was answered in this time, or its figures are not written yet: they come within a minute.</p>`
    : table({
        caption: 'Latency in milliseconds by capability',
        rows: latency,
        columns: [
          { head: 'Capability', kind: 'name', cell: ({ capability }) => words(capability) },
          { head: 'Calls', kind: 'number', cell: ({ whole }) => count(whole.calls) },
          ...percentileNames.map((name, i) => ({
            head: `${name}, ms`,
            kind: 'number' as const,
            cell: ({ whole }: LatencySeries) => msShown(whole.ms[i] ?? null),
          })),
        ],
      })
}
</section>
${latency.map(({ capability, points }) =>
  plot({
    id: `latency-${capability}`,
    title: `Latency of ${words(capability)} by ${unit}`,
    unit: 'milliseconds',
    groups: percentileNames,
    csvHref,
    kind: 'lines',
    points: points.map(({ at, ms }) => ({
      at,
      values: ms.map((one) => (one === null ? null : { value: msText(one), shown: msShown(one) })),
    })),
  }),
)}`

const msShown = (ms: number | null): string => {
  if (ms === null) return ''
  return Number.isFinite(ms) ? grouped(msText(ms)) : `over ${grouped(String(Math.floor(beyondMs)))}`
}

const grouped = (text: string): string => (text.includes('.') || text.includes('e') ? text : count(text))
