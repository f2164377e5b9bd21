import type { FastifyInstance } from 'fastify'
import type { Finding } from '../../administration/checks/check.ts'
import { type ProjectionState, projectionStates } from '../../administration/projections/projections.ts'
import type { Position } from '../../event-log/port.ts'
import { count } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type Dashboard, sendPage, viewerOf } from '../page.ts'
import { type StandingProjection, standing } from '../rows.ts'
import { layout, table, type Viewer } from './layout.ts'
import { behindText } from './rows.ts'

export const operationsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get('/operations', async (request, reply) => {
    const [{ head, states }, findings, lags] = await Promise.all([
      projectionStates(foundation),
      context.health.findings(),
      context.health.projectionLags(),
    ])
    const page = operationsPage({
      viewer: viewerOf(request, reply),
      head,
      findings,
      states: standing(states, lags),
    })
    return sendPage(reply, page)
  })
}

type OperationsView = {
  readonly viewer: Viewer
  readonly findings: readonly Finding[]
  readonly head: Position
  readonly states: readonly StandingProjection[]
}

const operationsPage = ({ viewer, findings, head, states }: OperationsView): Html =>
  layout({
    title: 'Operations',
    viewer,
    at: '/operations',
    main: html`<h1>Operations</h1>
<nav class="places" aria-label="More of operations"><a href="/commands/jobs/list">Jobs</a> <a href="/commands/projection/rebuilds">Rebuilds</a> <a href="/commands/event-log/list">Events</a> <a href="/commands/data/list">Data sources</a></nav>
<section aria-labelledby="checks">
<h2 id="checks">Checks</h2>
<p class="note">These are the current results of this process. <code>npm run -s cli -- doctor</code> also checks the host, the settings and the keys.</p>
${findingsTable(findings)}
</section>
<section aria-labelledby="projections">
<h2 id="projections">Projections</h2>
<p class="note">Projections are read models of the event log, which ends at position ${count(head)}.</p>
${projectionsTable(states)}
</section>`,
  })

const stateMark = ({ state, haltedStreams, parked }: ProjectionState): Renderable => {
  if (state === 'halted') return html`<span class="mark bad">halted</span>`
  if (haltedStreams.length > 0)
    return html`<span class="mark bad">${count(haltedStreams.length)} streams halted</span>`
  return parked > 0
    ? html`<span class="mark bad">${count(parked)} events set aside</span>`
    : html`<span class="mark good">live</span>`
}

const projectionsTable = (states: OperationsView['states']): Html =>
  table({
    caption: 'Projections',
    rows: states,
    columns: [
      {
        head: 'Projection',
        kind: 'name',
        cell: ({ name }) => html`<a href="/commands/projection/list?name=${name}">${name}</a>`,
      },
      { head: 'Version', kind: 'number', cell: ({ version }) => String(version) },
      { head: 'State', cell: stateMark },
      { head: 'Position', kind: 'number', cell: ({ position }) => count(position) },
      { head: 'Behind', kind: 'number', cell: behindText },
    ],
  })

const marks: Readonly<Record<Finding['level'], { readonly rank: number; readonly mark: Html }>> = {
  fault: { rank: 0, mark: html`<span class="mark bad">fault</span>` },
  warning: { rank: 1, mark: html`<span class="mark warn">warning</span>` },
  ok: { rank: 2, mark: html`<span class="mark good">ok</span>` },
}

/** Shows faults first, then warnings. */
const findingsTable = (findings: readonly Finding[]): Html =>
  table({
    caption: 'Checks',
    rows: findings.toSorted((a, b) => marks[a.level].rank - marks[b.level].rank),
    columns: [
      { head: 'Check', kind: 'name', cell: ({ about }) => about },
      { head: 'State', cell: ({ level }) => marks[level].mark },
      { head: 'Found', cell: ({ says }) => plain(says) },
      { head: 'Remedy', cell: ({ remedy }) => (remedy === null ? '–' : plain(remedy)) },
    ],
  })

/** Control characters in text from other software must not change how the page is displayed. */
const plain = (text: string): string => text.replace(/\p{C}/gu, '\u{fffd}')
