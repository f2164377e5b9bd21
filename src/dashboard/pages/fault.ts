import { sentence } from '../format.ts'
import { type Html, html } from '../html.ts'
import { layout } from './layout.ts'

/** The page for an error, with the next step. */
export const faultPage = ({
  status,
  title,
  advice,
}: {
  status: number
  title: string
  advice: string
}): Html =>
  layout({
    title,
    viewer: null,
    main: html`<div class="narrow">
<p class="eyebrow">${status}</p>
<h1>${title}</h1>
<p>${sentence(advice)}</p>
<p><a href="/">Go to the overview</a></p>
</div>`,
  })
