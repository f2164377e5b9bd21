import { type Html, html } from '../html.ts'
import { inputTime, type Range, rangeLabels, rangeNames } from '../ranges.ts'
import { described, type FormFault } from './layout.ts'

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
