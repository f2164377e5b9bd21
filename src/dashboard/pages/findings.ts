import type { Finding } from '../../administration/checks/check.ts'
import { type Html, html } from '../html.ts'
import { table } from './layout.ts'

const marks: Readonly<Record<Finding['level'], { readonly rank: number; readonly mark: Html }>> = {
  fault: { rank: 0, mark: html`<span class="mark bad">fault</span>` },
  warning: { rank: 1, mark: html`<span class="mark warn">warning</span>` },
  ok: { rank: 2, mark: html`<span class="mark good">ok</span>` },
}

/** The findings of checks: faults first, otherwise in the order of the list. */
export const findingsTable = (findings: readonly Finding[]): Html =>
  table({
    caption: 'Checks',
    rows: findings.toSorted((a, b) => marks[a.level].rank - marks[b.level].rank),
    columns: [
      { head: 'Check', kind: 'name', cell: ({ about }) => about },
      { head: 'State', cell: ({ level }) => marks[level].mark },
      { head: 'Found', cell: ({ says }) => plain(says) },
      { head: 'What to do', cell: ({ remedy }) => (remedy === null ? '–' : plain(remedy)) },
    ],
  })

/** Quoted text from other software must not change how the rest of the page is read. */
const plain = (text: string): string => text.replace(/\p{C}/gu, '\u{fffd}')
