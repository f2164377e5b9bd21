import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { assets, referenceAssets } from './assets.ts'
import { sendFile } from './file.ts'
import { readGuides } from './guides.ts'
import { guidePage, linksTo, overviewPage, pageHeaders, referenceHeaders, shell } from './page.ts'

/** `/docs` on the API's host, which is public: the guides, and a page for trying calls. `api` is the configured URL of the API. */
export const documentationPages =
  ({ version, api }: { readonly version: string; readonly api: string | null }): FastifyPluginAsync =>
  async (host) => {
    const guides = readGuides()
    const page = (path: string, text: string, headers: Readonly<Record<string, string>>): void => {
      const usual = Buffer.from(addressed(text, api))
      host.get(path, (request, reply) => {
        const own = api === null ? ownOrigin(request) : null
        return reply
          .headers({ ...headers, 'content-type': 'text/html; charset=utf-8' })
          .send(own === null ? usual : addressed(text, own))
      })
    }
    page('/docs', overviewPage(guides, version), pageHeaders)
    for (const guide of guides) page(`/docs/${guide.name}`, guidePage(guide, guides), pageHeaders)
    page('/docs/reference', referencePage(guides), referenceHeaders)
    for (const { path, whole, compressed } of assets)
      host.get(path, async (request, reply) => {
        const small = acceptsGzip(request)
        return sendFile(request, kept(reply, small), small ? await compressed() : whole)
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

const loopback = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/

/**
 * Returns the origin in the request if it is this machine. Others are ignored, because a client can send any Host header, and a cache could show it
 * to other readers.
 */
const ownOrigin = ({ host, protocol, socket }: FastifyRequest): string | null => {
  const address = socket.localAddress?.replace(/^::ffff:/, '') ?? ''
  const named = address.includes(':') ? `[${address}]` : address
  return loopback.test(host) || host === `${named}:${socket.localPort}`
    ? `${protocol === 'https' ? 'https' : 'http'}://${host}`
    : null
}

/** Replaces the address in the examples with the address of the API, if it is known. */
const addressed = (text: string, api: string | null): string =>
  api === null ? text : text.replaceAll('http://localhost:3000', api).replaceAll('localhost:3000', short(api))

/** Returns the origin without `http://`, which is curl's default. */
const short = (origin: string): string => origin.replace(/^http:\/\//, '')

const referencePage = (guides: ReturnType<typeof readGuides>): string => {
  const { styles, library, script } = referenceAssets
  return shell({
    title: 'Reference',
    path: '/docs/reference',
    links: linksTo(guides),
    head: `<link rel="stylesheet" href="${styles.href}">
<script defer src="${library.href}"></script>
<script defer src="${script.href}"></script>
`,
    main: `<h1>Reference</h1>
<p>Enter a key under “Authorize”, then make a call with “Try it out”. Start with a <a href="/docs/testing">test key</a>: calls with a
live key are charged as usual. The key is sent only to this host and is not stored.</p>
<noscript><p>This page needs JavaScript. <a href="/docs/partners">Every call is described</a> without it, and for programs in
<a href="/openapi.json">openapi.json</a>.</p></noscript>
<div id="reference"></div>`,
  })
}
