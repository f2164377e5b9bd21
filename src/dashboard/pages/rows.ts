import { durationText } from '../../administration/checks/check.ts'
import { mayOpen } from '../access.ts'
import { count } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { LateRows } from '../rows.ts'
import type { Viewer } from './layout.ts'

/** The notice above every page while rows are out of date. */
export const rowsNotice = ({ role, rows }: Pick<Viewer, 'role' | 'rows'>): Renderable => {
  if (rows === null || rows.kind === 'current') return null
  if (rows.kind === 'unknown')
    return html`<p class="notice" role="status">Some figures may be out of date, because the event log or the database did not answer.</p>`
  return html`<div class="notice bad" role="status"><p><strong>Some figures are out of date.</strong> Newer events are missing from the projections below. Nothing is lost, and charges do not depend on them.</p>
<ul>${rows.late.map((one) => html`<li>${named(one, mayOpen(role, 'GET /commands/projection/list'))} ${says(one)}</li>`)}</ul></div>`
}

const named = ({ name }: LateRows, leads: boolean): Html =>
  leads
    ? html`<a href="/commands/projection/list?name=${name}">${name}</a>`
    : html`<span class="id">${name}</span>`

const says = ({ state, behind, seconds }: LateRows): Html => {
  const far = html`${durationText(seconds * 1_000)} (${count(behind)} position${behind === 1n ? '' : 's'}) behind the event log`
  return {
    behind: html`is ${far}.`,
    halted: html`is halted, ${far}. It must be rebuilt.`,
    stream: html`has stopped for this organization at an event that it cannot process.`,
  }[state]
}
