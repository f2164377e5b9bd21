import { durationText } from '../../administration/doctor/finding.ts'
import { mayOpen } from '../access.ts'
import { count, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { LateRows } from '../rows.ts'
import type { Viewer } from './layout.ts'

/** What is above a page whose rows are not of now. */
export const rowsNotice = ({ role, rows }: Pick<Viewer, 'role' | 'rows'>): Renderable => {
  if (rows === null || rows.kind === 'current') return null
  if (rows.kind === 'unknown')
    return html`<p class="notice" role="status">It is not known whether the figures here are of now: the event log or the database does not say how far the rows are.</p>`
  return html`<div class="notice bad" role="status"><p><strong>The figures here are not of now.</strong> What was recorded since is missing from them. Nothing is lost, and what calls cost is decided without them.</p>
<ul>${rows.late.map((one) => html`<li>${named(one, mayOpen(role, 'GET /operations/projections/:projection'))} ${says(one)}</li>`)}</ul></div>`
}

const named = ({ name }: LateRows, leads: boolean): Html =>
  leads ? html`<a href="/operations/projections/${name}">${name}</a>` : html`<span class="id">${name}</span>`

const says = ({ state, behind, behindMs, position, asOfMs }: LateRows): Html => {
  const since = behindMs === 0 ? '' : ` for ${durationText(behindMs)} or longer`
  const far = `${count(behind)} position${behind === 1n ? '' : 's'}`
  const how = {
    behind: html`is ${far} behind the event log${since}`,
    halted: html`is halted, ${far} before the end of the event log, until it is rebuilt`,
    stream: html`has stopped for this organization, before an event it cannot fold`,
  }[state]
  const at = asOfMs === null ? '' : html`, ${utc(new Date(asOfMs))}`
  return html`${how}: figures as of position ${count(position)}${at}.`
}
