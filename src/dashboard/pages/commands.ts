import type { FastifyInstance } from 'fastify'
import { declarations } from '../../administration/declarations.ts'
import type { Declared } from '../../administration/declare.ts'
import { mayDo } from '../../administration/roles.ts'
import { hrefOf } from '../declared.ts'
import { capitalized } from '../format.ts'
import { type Html, html } from '../html.ts'
import { accountAt, type Dashboard, type OrganizationParams, sendPage, viewerOf } from '../page.ts'
import type { AccountRow } from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'

/** The commands and queries that the user can use, for all organizations or for one, grouped by noun. */
export const commandRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  pages.get('/commands', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const usable = declarations
      .filter(({ action }) => mayDo(viewer.role, action))
      .map((declared) => ({ declared, href: hrefOf(declared, { ...viewer, organizationId: null }) }))
    return sendPage(reply, commandsPage({ viewer, account: null, usable }))
  })
  pages.get<OrganizationParams>('/organizations/:organization/commands', async (request, reply) => {
    const viewer = viewerOf(request, reply)
    const account = await accountAt(context, request.params.organization)
    const usable = declarations
      .filter(({ fields }) => fields.some(({ control }) => control === 'organization'))
      .map((declared) => ({
        declared,
        href: hrefOf(declared, { ...viewer, organizationId: account.organization_id }),
      }))
      .filter(({ href }) => href !== null)
    return sendPage(reply, commandsPage({ viewer, account, usable }))
  })
}

/** `href` is null if only other interfaces offer the command. */
type Usable = { readonly declared: Declared; readonly href: string | null }

const headings: Readonly<Record<string, string>> = {
  org: 'Organizations',
  price: 'Prices',
  rerate: 'Re-rates',
  ledger: 'Ledgers and months',
  projection: 'Projections',
  key: 'API keys',
  webhook: 'Webhooks',
  'event-log': 'Event log',
  user: 'Users',
}

const commandsPage = ({
  viewer,
  account,
  usable,
}: {
  readonly viewer: Viewer
  readonly account: AccountRow | null
  readonly usable: readonly Usable[]
}): Html => {
  const title = account === null ? 'All commands' : `All commands for ${account.name}`
  const byNoun = Map.groupBy(usable, ({ declared }) => declared.name.split(' ')[0] ?? '')
  return layout({
    title,
    viewer,
    ...(account === null && { at: '/commands' as const }),
    main: html`${account !== null && organizationHead(viewer, account, '/commands')}
<h1>${title}</h1>
<p class="note">With your role, ${viewer.role}, you can use these commands${account === null ? ' here and on the command line' : ' here'}.</p>
${[...byNoun].map(([noun, ofNoun]) => section(noun, ofNoun))}`,
  })
}

const section = (noun: string, ofNoun: readonly Usable[]): Html => {
  const heading = headings[noun] ?? capitalized(noun)
  return html`<section class="catalogue" aria-labelledby="noun-${noun}">
<h2 id="noun-${noun}">${heading}</h2>
${table({
  caption: heading,
  rows: ofNoun,
  columns: [
    {
      head: 'Command',
      kind: 'name',
      cell: ({ declared: { name, interfaces }, href }) =>
        href === null
          ? html`${name} <small>${interfaces.join(', ')}</small>`
          : html`<a href="${href}">${name}</a>`,
    },
    {
      head: 'Summary',
      cell: ({ declared: { summary, changes } }) =>
        html`${capitalized(summary)}${changes === 'nothing' && html` <span class="minor">(changes nothing)</span>`}`,
    },
  ],
})}
</section>`
}
