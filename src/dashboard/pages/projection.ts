import type { ParkedEvent } from '../../administration/projections/parked.ts'
import type { ProjectionState } from '../../administration/projections/projections.ts'
import type { RebuildRow } from '../../administration/projections/rebuilds.ts'
import type { Position } from '../../event-log/port.ts'
import { mayOpen } from '../access.ts'
import { count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { crumbs, figures, layout, table, type Viewer } from './layout.ts'
import { stateMark } from './operations.ts'

/** One projection: its state, its set-aside events, and links to the commands about it. */

type ProjectionView = {
  readonly viewer: Viewer
  readonly head: Position
  readonly state: ProjectionState
  readonly running: RebuildRow | undefined
  readonly parked: readonly ParkedEvent[]
  readonly mayRelease: boolean
}

export const projectionPage = (view: ProjectionView): Html => {
  const { viewer, head, state, running, parked } = view
  const { name } = state
  return layout({
    title: name,
    viewer,
    at: '/operations',
    main: html`${crumbs([['/operations', 'Operations'], name])}
<h1>${name}</h1>
${state.error !== null && html`<p class="notice bad" role="alert">${state.error}</p>`}
${figures([
  ['State', stateMark(state)],
  ['Version', String(state.version)],
  ['Position', html`${count(state.position)} of ${count(head)}`],
  [
    'Behind',
    state.behind === null
      ? 'unknown'
      : `${count(state.behind)} ${state.behind === 1n ? 'position' : 'positions'}`,
  ],
])}
${running !== undefined && runningSection(view, running)}
${parked.length > 0 && parkedSection(view)}
${running === undefined && html`<p class="actions">${link(view, 'rebuild', 'Rebuild')}</p>`}`,
  })
}

/** A link to a command about it, for people who may give it. */
const link = ({ viewer, state }: ProjectionView, verb: string, label: string, more = ''): Renderable =>
  mayOpen(viewer.role, `GET /commands/projection/${verb}`) &&
  html`<a class="button" href="/commands/projection/${verb}?name=${state.name}${more}">${label}</a> `

const runningSection = (
  view: ProjectionView,
  running: RebuildRow,
): Html => html`<section aria-labelledby="running">
<h2 id="running">A rebuild is running</h2>
<p>Position ${count(running.position)} of ${count(running.target)}, begun ${utc(running.startedAt)} by ${running.actor}: ${running.reason}</p>
<p class="actions">${link(view, 'cancel', 'Cancel it')}</p>
</section>`

const parkedSection = (view: ProjectionView): Html => html`<section aria-labelledby="parked">
<h2 id="parked">Events it could not take</h2>
${table({
  caption: 'Events that were set aside',
  rows: view.parked,
  columns: [
    {
      head: 'Position',
      kind: 'number',
      cell: ({ position, type }) =>
        type === null
          ? count(position)
          : html`<a href="/events/at/${String(position)}">${count(position)}</a>`,
    },
    {
      head: 'Event',
      cell: ({ type, stream }) => html`${type ?? 'gone'} of <span class="id">${stream}</span>`,
    },
    { head: 'State', cell: ({ state }) => state },
    { head: 'Why', cell: ({ error }) => error },
    { head: 'Since (UTC)', cell: ({ parkedAt }) => instant(parkedAt) },
    { head: 'Released', cell: ({ releasedBy, reason }) => releasedBy !== null && `${releasedBy}: ${reason}` },
  ],
})}
<p class="actions">${link(view, 'retry', 'Retry')}${releaseLink(view)}</p>
</section>`

const releaseLink = (view: ProjectionView): Renderable => {
  const first = view.parked.find(({ state }) => state === 'parked')
  if (first === undefined) return false
  return view.mayRelease
    ? link(view, 'release', 'Skip it', `&position=${first.position}`)
    : 'It cannot skip an event: its rows are about money, or define who may call.'
}
