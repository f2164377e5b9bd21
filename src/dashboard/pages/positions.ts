import { count } from '../format.ts'
import { type Html, html } from '../html.ts'
import { type Sample, sampleEveryMs } from '../positions.ts'
import { type ByMinute, byMinute } from '../positions-by-minute.ts'
import { layout, type Viewer } from './layout.ts'
import { plot } from './plot.ts'

/** How far the projections were behind in the last hour, and how fast they went. */

/** Asked for again by the page itself, where scripts run. */
const every = '10s'
/** And where none runs. */
const refreshSeconds = 30

export const lastHour = (samples: readonly Sample[]): Html => {
  const { lag, rate, minutes } = byMinute(samples)
  return html`<section id="hour" aria-labelledby="hour-title" hx-get="/operations/plots" hx-select="#hour" hx-trigger="every ${every}" hx-swap="outerHTML">
<h2 id="hour-title">The last hour</h2>
<p class="note">This process looks every ${sampleEveryMs / 1_000} seconds and keeps an hour of it in memory: a restart begins anew. Positions are events in PostgreSQL, and bytes in EventStoreDB. <a href="/operations/plots">On a page of its own</a></p>
${minutes.length === 0 ? html`<p class="empty">It has not looked yet.</p>` : [plotOf('lag', 'Behind the event log', 'positions, the most of each minute', lag), plotOf('rate', 'Rate', 'positions a second, the mean of each minute', rate)]}
</section>`
}

const plotOf = (id: string, title: string, unit: string, { groups, points }: ByMinute): Html =>
  plot({
    ...{ id, title, unit, groups, csvHref: null, kind: 'lines' },
    points: points.map(({ at, values }) => ({
      at,
      values: values.map((value) => ({ value: String(value), shown: count(value) })),
    })),
  })

export const plotsPage = (viewer: Viewer, samples: readonly Sample[]): Html =>
  layout({
    title: 'The last hour',
    viewer,
    at: '/operations',
    scripts: ['more.js', 'plots.js'],
    refreshSeconds,
    main: html`<p class="eyebrow"><a href="/operations">Operations</a></p>
<h1>Projections, the last hour</h1>
${lastHour(samples)}`,
  })
