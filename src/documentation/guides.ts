import { readFileSync } from 'node:fs'
import markdownIt, { type Token } from 'markdown-it'

/**
 * The partners' guides as HTML. HTML in a guide is shown as text, and links can lead only to https or to pages of this host, so that a mistake in a
 * guide cannot become markup.
 */
type Heading = { readonly anchor: string; readonly text: string }

export type Guide = {
  readonly name: string
  readonly title: string
  /** The first paragraph, as plain text. */
  readonly about: string
  /** HTML. */
  readonly content: string
  readonly sections: readonly Heading[]
}

/** The guides for partners, in display order. */
const names = [
  'quick-start',
  'partners',
  'errors',
  'idempotency',
  'billing',
  'webhooks',
  'receipts',
  'testing',
  'changelog',
] as const

/** Returns the anchor that GitHub generates for a heading, so that links work both on GitHub and on these pages. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')

/** Returns the text of a line without Markdown. */
const plain = (inline: Token | undefined): string =>
  inline?.children?.map(({ content, type }) => (type === 'softbreak' ? ' ' : content)).join('') ?? ''

const markdown = markdownIt({ html: false, linkify: false, typographer: false })

const isServed = (name: string): boolean => names.some((one) => one === name)

/** Returns the target of a guide's link on these pages, or null if partners cannot read that page. */
const targetOf = (href: string): string | null => {
  if (href.startsWith('https://') || href.startsWith('#')) return href
  const [, name = '', anchor = ''] = /^([\w-]+)\.md(#.*)?$/.exec(href) ?? []
  return isServed(name) ? `/docs/${name}${anchor}` : null
}

/** Rewrites the links in a line. A link without a target becomes text. */
const linked = (children: readonly Token[]): void => {
  let nowhere = false
  for (const token of children) {
    if (token.type === 'link_open') {
      const target = targetOf(String(token.attrGet('href')))
      nowhere = target === null
      if (target === null) token.attrs = null
      else token.attrSet('href', target)
    }
    if (nowhere && (token.type === 'link_open' || token.type === 'link_close')) token.tag = 'span'
    if (token.type === 'link_close') nowhere = false
  }
}

/** Each heading below the title is a link to itself. Wide tables and long lines can be scrolled, even with a keyboard. */
markdown.renderer.rules.heading_open = (tokens, i) => {
  const { tag } = tokens[i] ?? { tag: 'h2' }
  return `<${tag} id="${anchorOf(plain(tokens[i + 1]))}">`
}
markdown.renderer.rules.heading_close = (tokens, i) => {
  const { tag } = tokens[i] ?? { tag: 'h2' }
  const text = plain(tokens[i - 1])
  const itself = `<a class="anchor" href="#${anchorOf(text)}" aria-label="Link to ${escaped(text)}">#</a>`
  return `${tag === 'h1' ? '' : ` ${itself}`}</${tag}>\n`
}
markdown.renderer.rules.table_open = () =>
  '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>\n'
markdown.renderer.rules.table_close = () => '</table></div>\n'
/** A row about an error code can be linked to. */
markdown.renderer.rules.tr_open = (tokens, i) => {
  const [, code] = /^`([A-Z]+_\d{3})`$/.exec(tokens[i + 2]?.content ?? '') ?? []
  return code === undefined ? '<tr>\n' : `<tr id="${code}">\n`
}
markdown.renderer.rules.fence = (tokens, i) =>
  `<pre tabindex="0"><code>${escaped(tokens[i]?.content ?? '')}</code></pre>\n`

export const escaped = (text: string): string => markdown.utils.escapeHtml(text).replaceAll("'", '&#39;')

export const guideOf = (name: string, text: string): Guide => {
  const tokens = markdown.parse(text, {})
  for (const { type, children } of tokens) if (type === 'inline') linked(children ?? [])
  const headings = tokens.flatMap(({ type, tag }, i) =>
    type === 'heading_open' ? [{ tag, text: plain(tokens[i + 1]) }] : [],
  )
  const paragraph = tokens.findIndex(({ type }) => type === 'paragraph_open')
  return {
    name,
    title: headings[0]?.text ?? name,
    about: plain(tokens[paragraph + 1]),
    content: markdown.renderer.render(tokens, markdown.options, {}),
    sections: headings
      .filter(({ tag }) => tag === 'h2')
      .map((heading) => ({ anchor: anchorOf(heading.text), text: heading.text })),
  }
}

export const readGuides = (): readonly Guide[] =>
  names.map((name) => guideOf(name, readFileSync(new URL(`../guides/${name}.md`, import.meta.url), 'utf8')))
