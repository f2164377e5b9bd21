import type pg from 'pg'
import type { Query } from '../../../projections/projection.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { type Form, formOf } from '../form.ts'
import { type Html, html } from '../html.ts'
import { attempt } from '../page.ts'
import { inputTime, type Range, rangeIn, rangeLabels, rangeNames } from '../ranges.ts'
import { described, type FormFault, faultNotice } from './layout.ts'

/** The time range of a page, which is read from the URL and shown in the form. */

/** The hour or the day in which the newest call was counted. */
const newestCall = (organizationId: string | null): Query<{ at: Date | null }> =>
  organizationId === null
    ? { text: 'select max(at) as at from usage_hours', values: [] }
    : {
        text: `select coalesce((select max(at) from usage_hours where organization_id = $1),
                               (select max(day)::timestamp at time zone 'utc' from usage_days where organization_id = $1)) as at`,
        values: [organizationId],
      }

/** The range in the URL of a page about one organization, or about all if the id is null. Throws `InputFault` if the range is invalid. */
export const rangeAsked = async (
  pool: pg.Pool,
  form: Form,
  organizationId: string | null,
): Promise<Range> => {
  const [newest] = await rowsOf(pool, newestCall(organizationId))
  return rangeIn(form, { nowMs: Date.now(), newestMs: newest?.at?.getTime() ?? null })
}

/** The range in a URL; if it is invalid, the default range and the fault. */
export const rangeOrFault = async (
  pool: pg.Pool,
  query: unknown,
  organizationId: string | null,
): Promise<{ readonly range: Range; readonly fault: FormFault | null }> => {
  const asked = await attempt(() => rangeAsked(pool, formOf(query), organizationId))
  return 'done' in asked
    ? { range: asked.done, fault: null }
    : { range: await rangeAsked(pool, formOf({}), organizationId), fault: asked.fault }
}

/** The form fields for a time range. The two times count only if the range is custom. */
export const rangeFields = (
  range: Range,
  fault: FormFault | null,
): Html => html`<p><label for="range">Range</label>
<select id="range" name="range">${rangeNames.map(
  (name) =>
    html`<option value="${name}"${name === range.name && html` selected`}>${rangeLabels[name]}</option>`,
)}</select></p>
<p class="custom"><label for="from">From (UTC)</label>
<input id="from" name="from" type="datetime-local" value="${inputTime(range.fromMs)}"${described('from', fault)}></p>
<p class="custom"><label for="to">Until (UTC)</label>
<input id="to" name="to" type="datetime-local" value="${inputTime(range.untilMs)}"${described('to', fault)}></p>`

/** A form with only the time range, and its fault. */
export const rangeForm = (
  action: string,
  { range, fault }: { readonly range: Range; readonly fault: FormFault | null },
): Html => html`<form class="filters" method="get" action="${action}">
${rangeFields(range, fault)}
<p class="actions"><button type="submit">Show</button></p>
</form>
${faultNotice(fault)}`
