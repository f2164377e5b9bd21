import type { FastifyInstance } from 'fastify'
import type { Finding } from '../../administration/checks/check.ts'
import { newestOf } from '../declared-routes.ts'
import { type Html, html } from '../html.ts'
import { type Dashboard, sendPage, viewerOf } from '../page.ts'
import { layout, table, type Viewer } from './layout.ts'

const projectionsMax = 100

export const operationsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/operations', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const all = { viewer, account: null, max: projectionsMax }
    const [projections, findings] = await Promise.all([
      newestOf('projection list', context, request, all),
      context.health.findings(),
    ])
    return sendPage(reply, operationsPage({ viewer, findings, projections }))
  })
}

type OperationsView = {
  readonly viewer: Viewer
  readonly findings: readonly Finding[]
  readonly projections: Html
}

const operationsPage = ({ viewer, findings, projections }: OperationsView): Html =>
  layout({
    title: 'Operations',
    viewer,
    at: '/operations',
    main: html`<h1>Operations</h1>
<nav class="places" aria-label="More of operations"><a href="/commands/jobs/list">Jobs</a> <a href="/commands/projection/rebuilds">Rebuilds</a> <a href="/commands/event-log/list">Events</a> <a href="/commands/event-log/checkpoints">Checkpoints</a> <a href="/commands/data/list">Data sources</a></nav>
<section aria-labelledby="checks">
<h2 id="checks">Checks</h2>
<p class="note">These are the current results of this process. <code>npm run -s cli -- doctor</code> also checks the host, the settings and the keys.</p>
${findingsTable(findings)}
</section>
<section aria-labelledby="projections">
<h2 id="projections">Projections</h2>
<p class="note">Projections are read models of the event log.</p>
${projections}
</section>`,
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
