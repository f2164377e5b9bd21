import type { Finding } from '../../administration/checks/check.ts'
import type { Examined } from '../examination.ts'
import { count, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { layout, table, type Viewer } from './layout.ts'

/** What is wrong with this installation, and what to do: what the command "doctor" tells. */

/** Where the look goes on. */
const refreshSeconds = 5

export const doctorPage = ({
  viewer,
  examined,
}: {
  readonly viewer: Viewer
  /** Null: the look is not over. */
  readonly examined: Examined | null
}): Html =>
  layout({
    title: 'Doctor',
    viewer,
    at: '/operations',
    ...(examined === null ? { refreshSeconds } : {}),
    main: html`<p class="eyebrow"><a href="/operations">Operations</a></p>
<h1>Doctor</h1>
<p class="note">Everything this installation needs, looked at from this process: what <code>npm run -s cli -- doctor</code> tells. Nothing is changed by it.</p>
${examined === null ? waiting : found(examined)}`,
  })

const waiting = html`<p class="notice" role="status">Not everything has answered yet. The look goes on; open this page again in a moment.</p>
<p class="actions"><a class="button" href="/operations/doctor">Look again</a></p>`

const rank: Readonly<Record<Finding['level'], number>> = { fault: 0, warning: 1, ok: 2 }

const found = ({ findings, startedAtMs, tookMs }: Examined): Html => {
  const counted = (level: Finding['level']): number => findings.filter((one) => one.level === level).length
  const [faults, warnings] = [counted('fault'), counted('warning')]
  // What is wrong comes first; otherwise in the order in which a person should read it.
  const sorted = findings.toSorted((a, b) => rank[a.level] - rank[b.level])
  return html`<p class="notice${faults > 0 && ' bad'}"${faults > 0 && html` role="alert"`}>${count(findings.length)} things were looked at: ${plural(faults, 'fault')}, ${plural(warnings, 'warning')}.</p>
<p class="note">Looked at ${utc(new Date(startedAtMs))}, in ${count(tookMs)} ms. For some seconds the same answer is shown to everyone.</p>
${findingsTable(sorted)}
<p class="actions"><a class="button" href="/operations/doctor">Look again</a></p>`
}

export const findingsTable = (rows: readonly Finding[]): Html =>
  table({
    caption: 'What was looked at',
    rows,
    columns: [
      { head: 'What', kind: 'name', cell: ({ about }) => about },
      { head: 'State', cell: ({ level }) => levelMark(level) },
      { head: 'What was found', cell: ({ says }) => plain(says) },
      { head: 'What to do', cell: ({ remedy }) => (remedy === null ? '–' : plain(remedy)) },
    ],
  })

const plural = (number: number, word: string): string => `${count(number)} ${word}${number === 1 ? '' : 's'}`

const marks: Readonly<Record<Finding['level'], Html>> = {
  ok: html`<span class="mark good">ok</span>`,
  warning: html`<span class="mark warn">warning</span>`,
  fault: html`<span class="mark bad">fault</span>`,
}
const levelMark = (level: Finding['level']): Renderable => marks[level]

/** What is quoted from elsewhere must not move the reader's eye. */
const plain = (text: string): string => text.replace(/\p{C}/gu, '\u{fffd}')
