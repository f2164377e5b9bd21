import { mayDo } from '../../administration/roles.ts'
import type { MailServer } from '../../capabilities/index.ts'
import { count, instant, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type FormFault, faultNotice, formFields, layout, table, type Viewer } from './layout.ts'

/** What the processes know of mail servers: breakers, sessions, and what came of asking. Never a mailbox. */

type MailboxesView = {
  readonly viewer: Viewer
  readonly servers: readonly MailServer[]
  readonly more: boolean
  readonly find: string
  /** The server whose breaker was just closed by hand; empty: none. */
  readonly closed: string
  readonly fault: FormFault | null
}

export const mailboxesPage = ({ viewer, servers, more, find, closed, fault }: MailboxesView): Html =>
  layout({
    title: 'Mailbox servers',
    viewer,
    at: '/operations',
    main: html`<p class="eyebrow"><a href="/operations">Operations</a></p>
<h1>Mailbox servers</h1>
<p class="note">The mail servers that e-mail checks ask, as each process knows them; put down every five seconds, those in trouble first. A breaker
keeps checks away from a server that refuses us or is not there, and closes by itself: once its time is over one check tries.</p>
${faultNotice(fault)}
${closed !== '' && html`<p class="notice" role="status">Every process closes its breaker of ${closed} within ten seconds. Where the server still refuses us it opens again.</p>`}
<form class="filters" method="get" action="/operations/mailboxes">
<p><label for="find">Server or domain contains</label>
<input id="find" name="find" value="${find}" maxlength="253" autocomplete="off"></p>
<p class="actions"><button class="quiet" type="submit">Find</button></p>
</form>
${
  servers.length === 0
    ? html`<p class="empty">${
        find === ''
          ? 'No process has asked a mail server lately, or EMAIL_PROBE is off.'
          : 'No process knows such a server, or was asked about such a domain lately.'
      }</p>`
    : table({ caption: 'Mail servers, open breakers first', rows: servers, columns: columnsFor(viewer) })
}
${more && html`<p class="note">There are more. Find one by its name.</p>`}`,
  })

const breakerText = ({ breaker, openForMs, why, reportedAt, openings }: MailServer): Renderable => {
  const often =
    openings > 0 && html` <small>opened ${count(openings)} ${openings === 1 ? 'time' : 'times'}</small>`
  if (breaker === 'closed') return ['closed', often]
  const because = why !== null && html` <small>${why}</small>`
  return breaker === 'open' && openForMs !== null
    ? [
        html`<span class="mark bad">open</span> until ${instant(new Date(reportedAt.getTime() + openForMs))}`,
        because,
        often,
      ]
    : [html`<span class="mark">one may try</span>`, because, often]
}

const throttleText = ({ sessionsMax, plain }: MailServer): string =>
  [`at most ${count(sessionsMax)} sessions`, ...(plain ? ['without TLS, which failed'] : [])].join('; ')

const countsText = ({ counts }: MailServer): string =>
  Object.entries(counts)
    .filter(([, n]) => n > 0)
    .map(([outcome, n]) => `${words(outcome)} ${count(n)}`)
    .join(', ') || 'none yet'

const columns = [
  {
    head: 'Server',
    kind: 'name',
    cell: ({ exchange, address }: MailServer) =>
      html`${exchange === '' ? 'not named' : exchange} <small class="id">${address}</small>`,
  },
  { head: 'Breaker', cell: breakerText },
  {
    head: 'Sessions',
    kind: 'number',
    cell: ({ sessions, idle }: MailServer) => html`${count(sessions)} <small>${count(idle)} idle</small>`,
  },
  { head: 'Waiting', kind: 'number', cell: ({ waiting }: MailServer) => count(waiting) },
  { head: 'Throttle', cell: throttleText },
  { head: 'What came of it', cell: countsText },
  { head: 'Asked about', cell: ({ domains }: MailServer) => domains.join(', ') || '–' },
  {
    head: 'Process',
    cell: ({ process, reportedAt }: MailServer) =>
      html`<span class="id">${process}</span> <small>at ${instant(reportedAt)}</small>`,
  },
] as const

const columnsFor = (viewer: Viewer) =>
  mayDo(viewer.role, 'jobs.run')
    ? [...columns, { head: 'Change', cell: (server: MailServer) => closeButton(viewer, server) }]
    : columns

const closeButton = (viewer: Viewer, { breaker, exchange, address }: MailServer): Renderable =>
  breaker === 'closed'
    ? '–'
    : html`<form method="post" action="/operations/mailboxes/close">${formFields(viewer)}<input type="hidden" name="server" value="${address}"><button class="quiet" type="submit" aria-label="Close the breaker of ${exchange === '' ? address : exchange}">Close the breaker</button></form>`
