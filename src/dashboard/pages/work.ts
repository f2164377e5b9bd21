import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'

/** The progress of running work. The page refreshes itself, and shows the result when the work has ended. */

/** The interval at which the page reloads if no script runs. */
const refreshSeconds = 3

export const workPage = ({
  viewer,
  title,
  since,
  progress,
  path,
}: {
  readonly viewer: Viewer
  readonly title: string
  readonly since: Date
  readonly progress: string
  /** The address of the page. */
  readonly path: string
}): Html =>
  layout({
    title,
    viewer,
    refreshSeconds,
    main: html`<div class="narrow" id="work" hx-get="${path}" hx-trigger="every 1s" hx-select="#main" hx-target="#main" hx-swap="outerMorph" hx-status:5xx="swap:none">
<h1>${title}</h1>
<p class="note">Started ${utc(since)}. The work continues if you leave this page.</p>
<p class="notice" role="status" data-progress>${progress}</p>
<p class="bar" aria-hidden="true"></p>
</div>`,
  })
