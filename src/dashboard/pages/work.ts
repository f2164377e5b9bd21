import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'

/** The progress of running work. The page reloads when the work has ended. */

/** How often the page reloads if no script runs. */
const refreshSeconds = 3

export const workPage = ({
  viewer,
  title,
  since,
  progress,
  stream,
}: {
  readonly viewer: Viewer
  readonly title: string
  readonly since: Date
  readonly progress: string
  /** The address from which the progress is streamed. */
  readonly stream: string
}): Html =>
  layout({
    title,
    viewer,
    refreshSeconds,
    main: html`<div class="narrow">
<h1>${title}</h1>
<p class="note">Started ${utc(since)}. The work continues if you leave this page.</p>
<p class="notice" role="status" data-progress="${stream}">${progress}</p>
<p class="bar" aria-hidden="true"></p>
</div>`,
  })
