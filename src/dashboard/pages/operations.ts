import type { FastifyInstance } from 'fastify'
import type { Finding } from '../../administration/checks/check.ts'
import { type JobRow, knownJobs } from '../../administration/jobs/jobs.ts'
import { nextRuns } from '../../administration/jobs/now.ts'
import { type ProjectionState, projectionStates } from '../../administration/projections/projections.ts'
import { type RebuildRow, rebuilds } from '../../administration/projections/rebuilds.ts'
import type { Position } from '../../event-log/port.ts'
import { mayOpen } from '../access.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type Dashboard, sendPage, viewerOf } from '../page.ts'
import { type StandingProjection, standing } from '../rows.ts'
import { layout, table, type Viewer } from './layout.ts'
import { behindText } from './rows.ts'

export const operationsRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { foundation } = context
  pages.get('/operations', async (request, reply) => {
    const jobs = (await knownJobs(foundation.pool)).filter(({ cron }) => cron !== null)
    const [{ head, states }, findings, lags, listed, next] = await Promise.all([
      projectionStates(foundation),
      context.health.findings(),
      context.health.projectionLags(),
      rebuilds(foundation),
      nextRuns(foundation.url, jobs, Date.now()),
    ])
    const page = operationsPage({
      viewer: viewerOf(request, reply),
      head,
      findings,
      rebuilds: listed,
      states: standing(states, lags),
      jobs: jobs.map((job) => ({ ...job, next: next.get(job.name) ?? null })),
    })
    return sendPage(reply, page)
  })
}

type ListedJob = JobRow & { readonly next: Date | null }

type OperationsView = {
  readonly viewer: Viewer
  readonly findings: readonly Finding[]
  readonly head: Position
  readonly states: readonly StandingProjection[]
  readonly rebuilds: readonly RebuildRow[]
  readonly jobs: readonly ListedJob[]
}

const operationsPage = ({ viewer, findings, head, states, rebuilds, jobs }: OperationsView): Html =>
  layout({
    title: 'Operations',
    viewer,
    at: '/operations',
    main: html`<h1>Operations</h1>
<nav class="places" aria-label="More of operations"><a href="/commands/event-log/list">Events</a> <a href="/commands/data/list">Data sources</a></nav>
<section aria-labelledby="checks">
<h2 id="checks">Checks</h2>
<p class="note">These are the current results of this process. <code>npm run -s cli -- doctor</code> also checks the host, the settings and the keys.</p>
${findingsTable(findings)}
</section>
<section aria-labelledby="projections">
<h2 id="projections">Projections</h2>
<p class="note">Projections are read models of the event log, which ends at position ${count(head)}.</p>
${projectionsTable(states)}
</section>
<section aria-labelledby="rebuilds">
<h2 id="rebuilds">Rebuilds</h2>
${
  rebuilds.length === 0
    ? html`<p class="empty">No rebuild yet.</p>`
    : html`${table({ caption: 'Rebuilds, newest first', rows: rebuilds, columns: rebuildColumns })}
<p class="note"><a href="/commands/projection/rebuilds">Show progress, or cancel a rebuild</a></p>`
}
</section>
<section aria-labelledby="jobs">
<h2 id="jobs">Jobs</h2>
${
  jobs.length === 0
    ? html`<p class="empty">No jobs are scheduled yet, because no process with the role jobs has started.</p>`
    : jobsTable(viewer, jobs)
}
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

const rebuildColumns = [
  { head: 'Started (UTC)', cell: ({ startedAt }: RebuildRow) => instant(startedAt) },
  { head: 'Projections', cell: ({ projections }: RebuildRow) => projections.join(', ') },
  {
    head: 'State',
    cell: ({ state, differences, error }: RebuildRow): Renderable => [
      state,
      differences.length > 0 && html` <span class="mark bad">${differences.length} differences</span>`,
      error !== null && html` <small>${error}</small>`,
    ],
  },
  { head: 'Events', kind: 'number', cell: ({ events }: RebuildRow) => count(events) },
  { head: 'Requested by', cell: ({ actor }: RebuildRow) => actor },
  { head: 'Reason', cell: ({ reason }: RebuildRow) => reason },
] as const

const jobsTable = (viewer: Viewer, jobs: readonly ListedJob[]): Html =>
  table({
    caption: 'Jobs',
    rows: jobs,
    columns: [
      {
        ...{ head: 'Job', kind: 'name' },
        cell: ({ name, purpose }): Renderable => html`${name} <small>${purpose}</small>`,
      },
      {
        head: 'Last run (UTC)',
        cell: ({ started_at }) => (started_at === null ? 'never' : instant(started_at)),
      },
      {
        head: 'Outcome',
        cell: ({ state, message, active }): Renderable => {
          if (active > 0) return 'running'
          if (state !== 'failed') return state === null ? '–' : 'succeeded'
          return html`<span class="mark bad">failed</span> <small>${message}</small>`
        },
      },
      { head: 'Next (UTC)', cell: ({ next }) => (next === null ? '–' : instant(next)) },
      { head: 'Failures, 24 h', kind: 'number', cell: ({ failed_24h }) => count(failed_24h) },
      { head: 'Dead letters', kind: 'number', cell: ({ dead_letters }) => count(dead_letters) },
      {
        head: 'Actions',
        cell: ({ name }): Renderable =>
          mayOpen(viewer.role, 'GET /commands/jobs/run')
            ? html`<a href="/commands/jobs/run?name=${name}">Run<span class="unseen"> ${name} now</span></a>`
            : '–',
      },
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
