import { readFileSync } from 'node:fs'
import type { FastifyPluginAsync } from 'fastify'
import type { Declared } from '../administration/declare.ts'
import { rolesThatMay } from '../administration/roles.ts'
import { stylesheet } from '../documentation/assets.ts'
import { sendFile } from '../documentation/file.ts'
import { escaped, guideOf } from '../documentation/guides.ts'
import { pageHeaders, shell } from '../documentation/page.ts'
import { adminMethodOf, adminPathOf } from './openapi.ts'

/** `/docs/admin` on the dashboard's host: the guide to the admin API, and a list of its commands and queries. */
export const adminDocumentation =
  (offered: readonly Declared[]): FastifyPluginAsync =>
  async (host) => {
    const guide = guideOf('admin', readFileSync(new URL('../guides/admin-api.md', import.meta.url), 'utf8'))
    const rows = offered.map(
      (one) =>
        `<tr><td><code>${adminMethodOf(one)} ${adminPathOf(one)}</code></td><td>${escaped(one.summary)}</td><td>${rolesThatMay(one.action)}</td></tr>`,
    )
    const page = shell({
      title: guide.title,
      path: '/docs/admin',
      links: [
        { href: '/', title: 'Dashboard' },
        { href: '/docs/admin', title: guide.title },
        { href: '/admin/openapi.json', title: 'openapi.json' },
      ],
      main: `${guide.content}
<h2 id="all">All commands and queries</h2>
<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>
<thead><tr><th>Request</th><th>What it does</th><th>For</th></tr></thead>
<tbody>${rows.join('\n')}</tbody></table></div>`,
    })
    host.get('/docs/admin', (_, reply) =>
      reply.headers({ ...pageHeaders, 'content-type': 'text/html; charset=utf-8' }).send(page),
    )
    host.get(stylesheet.path, (request, reply) => sendFile(request, reply, stylesheet.whole))
  }
