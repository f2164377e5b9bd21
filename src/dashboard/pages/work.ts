import { utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'

/** Running work: its progress. The page is loaded again when the work is done. */

/** If no script runs. */
const refreshSeconds = 3

export const workPage = ({
  viewer,
  work,
}: {
  readonly viewer: Viewer
  readonly work: {
    readonly id: string
    readonly title: string
    readonly startedAtMs: number
    readonly progress: string
  }
}): Html =>
  layout({
    title: work.title,
    viewer,
    refreshSeconds,
    main: html`<div class="narrow">
<h1>${work.title}</h1>
<p class="note">Since ${utc(new Date(work.startedAtMs))}. It goes on when this page is left.</p>
<p class="notice" role="status" data-progress="/waiting/${work.id}/progress">${work.progress || 'It has begun.'}</p>
<p class="bar" aria-hidden="true"></p>
</div>`,
  })

/** The failed work, and that nothing else was done. */
export const workFailedPage = ({
  viewer,
  title,
  message,
}: {
  readonly viewer: Viewer
  readonly title: string
  readonly message: string
}): Html =>
  layout({
    title,
    viewer,
    main: html`<div class="narrow">
<h1>${title}</h1>
<p class="notice bad" role="alert">${message}</p>
<p class="actions"><a class="button" href="/">Overview</a></p>
</div>`,
  })
