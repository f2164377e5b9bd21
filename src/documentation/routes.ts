import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { assets, referenceAssets } from './assets.ts'
import { readGuides } from './guides.ts'
import { guidePage, overviewPage, pageHeaders, referenceHeaders, shell } from './page.ts'

/** Where people open the dashboard: at an origin that was named, or else at a port of the host that was asked. */
type DashboardPlace = { readonly origin: string | null; readonly port: number }

/** `/docs` on the API's host, for everyone: the guides, and a page that tries calls. `version`: of the document. */
export const documentationPages =
  ({
    version,
    dashboard,
  }: {
    readonly version: string
    readonly dashboard: DashboardPlace
  }): FastifyPluginAsync =>
  async (host) => {
    const guides = readGuides()
    const page = (path: string, text: string, headers: Readonly<Record<string, string>>): void => {
      host.get(path, (request, reply) =>
        reply
          .headers({ ...headers, 'content-type': 'text/html; charset=utf-8' })
          .send(addressed(text, request, dashboard)),
      )
    }
    page('/docs', overviewPage(guides, version), pageHeaders)
    for (const guide of guides) page(`/docs/${guide.name}`, guidePage(guide, guides), pageHeaders)
    page('/docs/reference', referencePage(guides), referenceHeaders)
    for (const { path, type, body } of assets)
      host.get(path, async (request, reply) => {
        const compressed = acceptsGzip(request)
        return kept(reply, compressed)
          .type(type)
          .send(await body(compressed))
      })
  }

const acceptsGzip = ({ headers }: FastifyRequest): boolean =>
  /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:,|$))/.test(String(headers['accept-encoding'] ?? ''))

const kept = (reply: FastifyReply, compressed: boolean): FastifyReply =>
  reply.headers({
    'cache-control': 'public, max-age=31536000, immutable',
    vary: 'accept-encoding',
    ...(compressed ? { 'content-encoding': 'gzip' } : {}),
  })

/** What an address may be made of, so that nothing else that comes as `Host` is repeated. */
const hostPattern = /^(?:[A-Za-z0-9.-]{1,255}|\[[0-9a-fA-F:.]{2,45}\])(?::\d{1,5})?$/

/** The examples in the guides, asked of the host that shows them, and of its dashboard. */
const addressed = (
  text: string,
  { host, hostname, protocol }: FastifyRequest,
  { origin, port }: DashboardPlace,
): string => {
  if (!hostPattern.test(host)) return text
  const api = `${protocol}://${host}`
  return text
    .replaceAll('http://localhost:3000', api)
    .replaceAll('localhost:3000', short(api))
    .replaceAll('localhost:3001', short(origin ?? `${protocol}://${hostname}:${port}`))
}

/** As the examples have it: curl takes http where no scheme is. */
const short = (origin: string): string => origin.replace(/^http:\/\//, '')

const referencePage = (guides: ReturnType<typeof readGuides>): string => {
  const { styles, library, script } = referenceAssets
  return shell({
    ...{ title: 'Reference', path: '/docs/reference', guides },
    head: `<link rel="stylesheet" href="${styles.href}">
<script defer src="${library.href}"></script>
<script defer src="${script.href}"></script>
`,
    main: `<h1>Reference</h1>
<p>“Authorize” takes a key, “Try it out” makes the call from this page. Begin with a <a href="/docs/testing">test key</a>: a live key is
charged here as anywhere. The key goes to this host only and is forgotten when you leave. Whoami is on the dashboard's host and cannot be
tried here.</p>
<noscript><p>This page needs JavaScript. <a href="/docs/partners">Every call is described</a> without it, and for programs in
<a href="/openapi.json">openapi.json</a>.</p></noscript>
<div id="reference"></div>`,
  })
}
