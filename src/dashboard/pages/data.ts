import type { LastImport } from '../../administration/sources/imports.ts'
import { ageDaysOf, type DataSource, isTooOld } from '../../call/data-source.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { crumbs, layout, table, type Viewer } from './layout.ts'

/** The data behind the answers: lists, files and tables, their age, and what to do about it. */

type DataView = {
  readonly viewer: Viewer
  readonly sources: readonly DataSource[]
  /** The data that could not be read. */
  readonly faults: readonly string[]
  readonly imports: { readonly [Of in NonNullable<DataSource['imported']>]: LastImport | null }
  /** The machine that has these files. */
  readonly host: string
  readonly nowMs: number
}

export const dataPage = (view: DataView): Html => {
  const { viewer, sources, faults, host, nowMs } = view
  return layout({
    title: 'Data sources',
    viewer,
    at: '/operations',
    main: html`${crumbs([['/operations', 'Operations'], 'Data sources'])}
<h1>Data sources</h1>
<p class="note">The data that answers are based on. Files are those of the machine <span class="id">${host}</span>, which shows this page; each machine has its own files.</p>
${faults.map((fault) => html`<p class="notice bad" role="alert">${fault}</p>`)}
${
  sources.length === 0
    ? html`<p class="empty">Nothing could be looked at.</p>`
    : table({
        caption: 'Data sources',
        rows: sources,
        columns: [
          { head: 'Data', kind: 'name', cell: ({ name }) => name },
          {
            head: 'From',
            cell: ({ from, version }) => [
              html`<span class="free">${from}</span>`,
              version !== null && html` <small>${version}</small>`,
            ],
          },
          { head: 'Holds', cell: ({ holds }) => holds },
          { head: 'As of (UTC)', cell: ({ asOf }) => (asOf === null ? '–' : instant(asOf)) },
          { head: 'Age', cell: ageText(nowMs) },
          { head: 'Last import (UTC)', cell: importText(view) },
          { head: 'What to do', cell: remedyText(nowMs) },
        ],
      })
}`,
  })
}

const days = (n: number): string => `${count(n)} ${n === 1 ? 'day' : 'days'}`

const ageText =
  (nowMs: number) =>
  (source: DataSource): Renderable => {
    if (source.asOf === null) return '–'
    const age = days(ageDaysOf(source.asOf, nowMs))
    if (isTooOld(source, nowMs)) return html`<span class="mark bad">too old</span> ${age}`
    return source.ageDaysMax === null ? age : `${age}, at most ${count(source.ageDaysMax)}`
  }

const importText =
  ({ imports }: DataView) =>
  ({ imported }: DataSource): Renderable => {
    if (imported === null) return '–'
    const last = imports[imported]
    return last === null ? 'none recorded' : html`${instant(new Date(last.at))} by ${last.actor}`
  }

/** Data that is not old needs no action; missing data has no age. */
const remedyText =
  (nowMs: number) =>
  (source: DataSource): Renderable =>
    source.remedy !== null && (source.ageDaysMax === null || isTooOld(source, nowMs)) ? source.remedy : '–'
