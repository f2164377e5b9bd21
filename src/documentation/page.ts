import { stylesheet } from './assets.ts'
import { escaped, type Guide } from './guides.ts'

/** Allows a page to load resources only from this host. */
const policy = [
  "default-src 'none'",
  "style-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
]

export const pageHeaders = {
  'cache-control': 'no-cache',
  'content-security-policy': policy.join('; '),
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
} as const

/** Allows calls from the page only to this host, so that a key is never sent to another host. */
export const referenceHeaders = {
  ...pageHeaders,
  'content-security-policy': [...policy, "script-src 'self'", "connect-src 'self'"].join('; '),
} as const

const icon =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='3' fill='%230b5a8a'/%3E%3Cpath d='M4 5h8M4 8h8M4 11h5' stroke='%23fff' stroke-width='1.5'/%3E%3C/svg%3E"

type Shell = {
  readonly title: string
  readonly path: string
  readonly links: readonly Link[]
  /** HTML. */
  readonly main: string
  readonly aside?: string
  readonly head?: string
}

type Link = { readonly href: string; readonly title: string }

export const linksTo = (guides: readonly Pick<Guide, 'name' | 'title'>[]): readonly Link[] => [
  { href: '/docs', title: 'Overview' },
  ...guides.map(({ name, title }) => ({ href: `/docs/${name}`, title })),
  { href: '/docs/reference', title: 'Reference: try a call' },
  { href: '/openapi.json', title: 'openapi.json' },
]

const navigation = ({ links, path }: Pick<Shell, 'links' | 'path'>): string => {
  const items = links.map(({ href, title }) => {
    const here = href === path ? ' aria-current="page"' : ''
    return `<li><a href="${href}"${here}>${escaped(title)}</a></li>`
  })
  return `<nav aria-label="Pages"><ul>${items.join('')}</ul></nav>`
}

export const shell = (page: Shell): string => {
  const { title, main, aside = '', head = '' } = page
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Enrichment ledger</title>
<link rel="icon" href="${icon}">
${head}<link rel="stylesheet" href="${stylesheet.href}">
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<header><a class="brand" href="/docs">Enrichment ledger</a> <span>Documentation</span></header>
<div class="columns">
${navigation(page)}
<main id="content">
${main}
</main>
${aside}
</div>
</body>
</html>
`
}

const contents = ({ sections }: Guide): string =>
  sections.length < 2
    ? ''
    : `<aside><nav aria-label="On this page"><p class="label">On this page</p><ul>${sections
        .map(({ anchor, text }) => `<li><a href="#${anchor}">${escaped(text)}</a></li>`)
        .join('')}</ul></nav></aside>`

export const guidePage = (guide: Guide, guides: readonly Guide[]): string => {
  const next = guides[guides.indexOf(guide) + 1]
  const onward =
    next === undefined
      ? ''
      : `<p class="onward">Next: <a href="/docs/${next.name}">${escaped(next.title)}</a></p>`
  const { title, name, content } = guide
  return shell({
    title,
    path: `/docs/${name}`,
    links: linksTo(guides),
    main: content + onward,
    aside: contents(guide),
  })
}

export const overviewPage = (guides: readonly Guide[], version: string): string => {
  const listed = guides.map(
    ({ name, title, about }) =>
      `<li><a href="/docs/${name}">${escaped(title)}</a><p>${escaped(about)}</p></li>`,
  )
  const main = `<h1>Documentation</h1>
<p>Version ${escaped(version)} of the API.</p>
<ul class="overview">${listed.join('\n')}
<li><a href="/docs/reference">Reference</a><p>All calls with their members, and a form to try each call with your key.</p></li>
<li><a href="/openapi.json">openapi.json</a><p>The same description for programs (OpenAPI 3.1). You can generate a client from it.</p></li>
</ul>`
  return shell({ title: 'Documentation', path: '/docs', links: linksTo(guides), main })
}
