import type { ParkedEvent, Retried } from '../../administration/projections/parked.ts'
import type { ProjectionState } from '../../administration/projections/projections.ts'
import type { RebuildRow } from '../../administration/projections/rebuilds.ts'
import type { Position } from '../../event-log/port.ts'
import { mayOpen } from '../access.ts'
import { count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  table,
  type Viewer,
} from './layout.ts'
import { stateMark } from './operations.ts'

/** One projection: its state, its set-aside events, and the actions on it. */

type ProjectionView = {
  readonly viewer: Viewer
  readonly head: Position
  readonly state: ProjectionState
  readonly running: RebuildRow | undefined
  readonly parked: readonly ParkedEvent[]
  readonly mayRelease: boolean
  readonly fault: FormFault | null
}

export const projectionPage = (view: ProjectionView): Html => {
  const { viewer, head, state, running, parked, fault } = view
  const { name } = state
  return layout({
    title: name,
    viewer,
    at: '/operations',
    main: html`<p class="eyebrow"><a href="/operations">Operations</a></p>
<h1>${name}</h1>
${faultNotice(fault)}
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
${mayChange(view) && running === undefined && changeForms(view)}`,
  })
}

/** All of its forms share one action of the table. */
const mayChange = ({ viewer }: ProjectionView): boolean =>
  mayOpen(viewer.role, 'POST /operations/projections/:projection/rebuild')

const actionOf = ({ state }: ProjectionView, act: string): string =>
  `/operations/projections/${state.name}/${act}`

const runningSection = (
  view: ProjectionView,
  running: RebuildRow,
): Html => html`<section aria-labelledby="running">
<h2 id="running">A rebuild is running</h2>
<p>Position ${count(running.position)} of ${count(running.target)}, begun ${utc(running.startedAt)} by ${running.actor}: ${running.reason}</p>
${
  mayChange(view) &&
  html`<form method="post" action="${actionOf(view, 'cancel')}">${formFields(view.viewer)}
<p class="actions"><button class="quiet" type="submit">Cancel it</button></p></form>`
}
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
${
  mayChange(view) &&
  html`<form method="post" action="${actionOf(view, 'retry')}">${formFields(view.viewer)}
<p class="note">If this release can read all of them, the projection is folded anew with them.</p>
<p class="actions"><button type="submit">Retry</button></p></form>`
}
${mayChange(view) && releaseForm(view)}
</section>`

const releaseForm = (view: ProjectionView): Renderable => {
  const first = view.parked.find(({ state }) => state === 'parked')
  if (first === undefined) return false
  if (!view.mayRelease)
    return html`<p class="note">It cannot go on without one: its rows are of money, or say who may call.</p>`
  return html`<form class="fields" method="post" action="${actionOf(view, 'release')}">${formFields(view.viewer)}
<p class="note">The projection goes on without the event for ever. Later rebuilds leave it out too.</p>
<p><label for="position">Position</label>
<input id="position" name="position" inputmode="numeric" value="${first.position.toString()}" required${described('position', view.fault)}></p>
${reasonField(view, 'release-reason')}
<p class="actions"><button class="danger" type="submit">Go on without it</button></p></form>`
}

const reasonField = ({ fault }: ProjectionView, id: string): Html => html`<p><label for="${id}">Reason</label>
<input id="${id}" name="reason" maxlength="200" required autocomplete="off"${described('reason', fault, `${id}-hint`)}>
<small id="${id}-hint">Kept in the event log with your name.</small></p>`

const changeForms = (view: ProjectionView): Html => html`<section class="narrow" aria-labelledby="rebuild">
<h2 id="rebuild">Rebuild</h2>
<p class="note">Builds new rows from the event log and replaces the current ones if the totals of every ledger are those of the log. Calls and readers go on.</p>
<form class="fields" method="post" action="${actionOf(view, 'rebuild')}">${formFields(view.viewer)}
${reasonField(view, 'rebuild-reason')}
<p class="actions"><button type="submit">Rebuild ${view.state.name}</button></p></form>
</section>`

export const retriedPage = ({
  viewer,
  name,
  retried: { waiting, unreadable, left },
}: {
  readonly viewer: Viewer
  readonly name: string
  readonly retried: Retried
}): Html =>
  layout({
    title: `${name}, retried`,
    viewer,
    at: '/operations',
    main: html`<p class="eyebrow"><a href="/operations/projections/${name}">${name}</a></p>
<h1>${unreadable.length > 0 ? 'Nothing was changed' : `${count(waiting.length - left.length)} of ${count(waiting.length)} events are folded now`}</h1>
${unreadable.length > 0 && html`<p>Run the release that knows these events:</p>`}
<ul>${(unreadable.length > 0 ? unreadable : left.map(({ position, stream, error }) => `position ${position} of ${stream}: ${error}`)).map((one) => html`<li>${one}</li>`)}</ul>`,
  })
