/** The pages that partners read are complete, have no broken links, and contain only our own content. */
import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import fastify from 'fastify'
import { describe, expect, test } from 'vitest'
import service from '../../package.json' with { type: 'json' }
import { errorCatalogue } from '../../src/call/errors.ts'
import { guideOf } from '../../src/documentation/guides.ts'
import { documentationForPeople } from '../../src/start/hosts.ts'
import { houseForFile } from '../support/house.ts'

const house = await houseForFile()

const guides = [
  'quick-start',
  'partners',
  'errors',
  'idempotency',
  'billing',
  'webhooks',
  'receipts',
  'testing',
]
const paths = ['/docs', ...[...guides, 'changelog', 'reference'].map((name) => `/docs/${name}`)]

type Page = { readonly status: number; readonly headers: Headers; readonly text: string }
const page = async (path: string, headers: Record<string, string> = {}): Promise<Page> => {
  const answer = await fetch(`${house.apiUrl}${path}`, { headers })
  return { status: answer.status, headers: answer.headers, text: await answer.text() }
}
const all = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map(([, found = '']) => found)

describe('the pages', () => {
  test('are HTML that loads nothing from other hosts, and scripts only on the page that tries calls', async () => {
    for (const path of paths) {
      const { status, headers, text } = await page(path)
      expect([path, status, headers.get('content-type')]).toEqual([path, 200, 'text/html; charset=utf-8'])
      const policy = headers.get('content-security-policy') ?? ''
      expect(policy).toMatch(/^default-src 'none'; .*frame-ancestors 'none'/)
      expect(policy).not.toMatch(/unsafe|\*|https?:/)
      expect(policy.includes('script-src')).toBe(path === '/docs/reference')
      expect(headers.get('x-content-type-options')).toBe('nosniff')
      expect(text).not.toMatch(/ on[a-z]+=|javascript:| style=|<style/)
      const loaded = [
        ...all(text, /<(?:script|img)[^>]* src="([^"]+)"/g),
        ...all(text, /rel="stylesheet" href="([^"]+)"/g),
      ]
      expect(loaded.filter((src) => !src.startsWith('/docs/assets/'))).toEqual([])
      expect(text.match(/<script/g)?.length ?? 0).toBe(path === '/docs/reference' ? 2 : 0)
    }
  })

  test('lead to pages, headings and files that exist', async () => {
    const texts = new Map<string, string>()
    for (const path of paths) texts.set(path, (await page(path)).text)
    const broken: string[] = []
    for (const [path, text] of texts)
      for (const href of all(text, /(?:href|src)="([^"]+)"/g)) {
        if (href.startsWith('data:') || href.startsWith('https://')) continue
        const [target = '', anchor] = href.split('#')
        const there =
          texts.get(target === '' ? path : target) ?? ((await page(target)).status === 200 ? '' : null)
        if (there === null || (anchor !== undefined && !there.includes(`id="${anchor}"`)))
          broken.push(`${path}: ${href}`)
      }
    expect(broken).toEqual([])
  })

  test('contain every error code and the version of the document', async () => {
    const { text } = await page('/docs/errors')
    const missing = (code: string) => !text.includes(`<tr id="${code}">\n<td><code>${code}</code>`)
    expect(Object.keys(errorCatalogue).filter(missing)).toEqual([])
    const document = JSON.parse((await page('/openapi.json')).text) as { info: { version: string } }
    expect(document.info.version).toBe(service.version)
    expect((await page('/docs')).text).toContain(`Version ${service.version} `)
  })

  test('show examples for this machine to readers on this machine', async () => {
    const { text } = await page('/docs/quick-start')
    expect(text).toContain(`curl -i ${new URL(house.apiUrl).host}/v1/email/validate`)
    expect(text).not.toContain('localhost:3000')
  })

  test.each(['evil.example', '127.0.0.1.evil.example', '203.0.113.7:3000', 'x"><script>alert(1)</script>'])(
    'repeat no other host: %s',
    async (host) => {
      const { port } = new URL(house.apiUrl)
      const raw = await askRaw(Number(port), '/docs/quick-start', host)
      expect(raw).not.toContain(host)
      expect(raw).not.toContain('<script>')
    },
  )

  test.each([
    [undefined, 'localhost:8080', 'localhost:8080'],
    [undefined, '[::1]:8080', '[::1]:8080'],
    ['https://api.example.com', 'evil.example', 'https://api.example.com'],
    [undefined, 'evil.example', 'localhost:3000'],
  ])('with API_URL %s, requested from %s, examples lead to %s', async (api, host, shown) => {
    const server = fastify()
    server.register(documentationForPeople({ API_URL: api }))
    const { body } = await server.inject({ url: '/docs/quick-start', headers: { host } })
    expect(body).toContain(`curl -s ${shown}/whoami`)
    expect(body).toContain(`curl -i ${shown}/v1/email/validate`)
    await server.close()
  })

  test('are served only for GET, and no other page exists', async () => {
    const posted = await fetch(`${house.apiUrl}/docs`, { method: 'POST' })
    expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET'])
    for (const path of [
      '/docs/operators',
      '/docs/../package.json',
      '/docs/assets/routes.ts',
      '/docs/finance',
    ])
      expect([path, (await page(path)).status]).toEqual([path, 404])
    expect((await fetch(`${house.dashboardUrl}/docs`, { redirect: 'manual' })).status).not.toBe(200)
  })

  test('load files that can be cached forever, compressed for clients that accept it', async () => {
    const { text } = await page('/docs/reference')
    const loaded = all(text, /"(\/docs\/assets\/[^"]+)"/g)
    expect(loaded.length).toBe(4)
    for (const href of loaded) {
      expect(href).toMatch(/\?v=[0-9a-f]{12}$/)
      const whole = await fetch(`${house.apiUrl}${href}`, { headers: { 'accept-encoding': 'identity' } })
      expect(whole.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
      expect(whole.headers.get('content-encoding')).toBe(null)
      const bytes = Buffer.from(await whole.arrayBuffer())
      const { body, encoding } = await askCompressed(`${house.apiUrl}${href}`)
      expect(encoding).toBe('gzip')
      expect(gunzipSync(body).equals(bytes)).toBe(true)
      const tag = whole.headers.get('etag') ?? ''
      const again = await fetch(`${house.apiUrl}${href}`, {
        headers: { 'accept-encoding': 'identity', 'if-none-match': `"other", W/${tag}` },
      })
      expect([again.status, await again.text(), again.headers.get('etag')]).toEqual([304, '', tag])
    }
  })
})

/** Does not use fetch, which would decompress the body. */
const askCompressed = async (url: string): Promise<{ body: Buffer; encoding: unknown }> => {
  const { request } = await import('node:http')
  return new Promise((resolve, reject) => {
    request(url, { headers: { 'accept-encoding': 'gzip, br' } }, (answer) => {
      const chunks: Buffer[] = []
      answer.on('data', (chunk: Buffer) => chunks.push(chunk))
      answer.on('end', () =>
        resolve({ body: Buffer.concat(chunks), encoding: answer.headers['content-encoding'] }),
      )
    })
      .on('error', reject)
      .end()
  })
}

const askRaw = async (port: number, path: string, host: string): Promise<string> => {
  const { connect } = await import('node:net')
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`),
    )
    socket.on('data', (chunk) => {
      text += chunk.toString()
    })
    socket.on('end', () => resolve(text))
    socket.on('error', reject)
  })
}

describe('the text of a guide', () => {
  test.each([
    ['<script>alert(1)</script>', /<script/],
    ['<img src=x onerror=alert(1)>', /<img/],
    ['[x](javascript:alert(1))', /href="javascript/],
    ['[x](http://elsewhere.example)', /href="http:/],
    ['[x](../../README.md#map)', /href=/],
    ['[x](operators.md)', /href=/],
    ['```\n</code><script>\n```', /<script/],
    ['## <b>"x"</b>', /<b>/],
  ])('%s becomes no markup', (text, unwanted) => {
    expect(guideOf('x', `# T\n\n${text}\n`).content).not.toMatch(unwanted)
  })

  test('headings have the anchors that they have elsewhere, and links lead to pages', () => {
    const { content, sections, title, about } = guideOf(
      'x',
      '# A `b` c\n\nFirst [one](errors.md#error-codes).\n\n## POST /v1/x: "it"\n',
    )
    expect([title, about]).toEqual(['A b c', 'First one.'])
    expect(sections).toEqual([{ anchor: 'post-v1x-it', text: 'POST /v1/x: "it"' }])
    expect(content).toContain('<a href="/docs/errors#error-codes">one</a>')
    expect(content).toContain('<h2 id="post-v1x-it">')
  })
})

test.each(['src/guides/changelog.md', 'CHANGELOG.md'])(
  '%s begins with the version of the document',
  (path) => {
    const text = readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
    const versions = all(text, /^## (.+)$/gm)
    expect(versions[0]).toBe(service.version)
    const order = (version: string): number =>
      version.split('.').reduce((sum, part) => sum * 1_000 + Number(part), 0)
    expect(versions).toEqual([...new Set(versions)].toSorted((a, b) => order(b) - order(a)))
  },
)
