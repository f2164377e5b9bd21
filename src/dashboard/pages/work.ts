import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'

/** Work under way: its progress. The page is loaded again when the work has ended. */

/** If no script runs. */
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
  /** The address that sends the progress. */
  readonly stream: string
}): Html =>
  layout({
    title,
    viewer,
    refreshSeconds,
    main: html`<div class="narrow">
<h1>${title}</h1>
<p class="note">Since ${utc(since)}. It goes on when this page is left.</p>
<p class="notice" role="status" data-progress="${stream}">${progress}</p>
<p class="bar" aria-hidden="true"></p>
</div>`,
  })
