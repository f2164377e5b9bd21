/**
 * HTML as values. `html` escapes every interpolated value except its own results. Attributes must be quoted, and their URLs must begin with
 * one of our paths.
 */

/** Not exported, so that no other file can create markup. */
const markup = Symbol('markup')

export type Html = { readonly [markup]: string }

/** Values that may be interpolated. Null, undefined and false are left out. */
export type Renderable = Html | string | number | bigint | false | null | undefined | readonly Renderable[]

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => escapes[character] ?? '')

const rendered = (value: Renderable): string => {
  if (value === null || value === undefined || value === false) return ''
  if (typeof value === 'string') return escaped(value)
  if (typeof value === 'number' || typeof value === 'bigint') return String(value)
  return markup in value ? value[markup] : value.map(rendered).join('')
}

export const html = (strings: TemplateStringsArray, ...values: readonly Renderable[]): Html => ({
  [markup]: strings.reduce((text, part, i) => text + rendered(values[i - 1]) + part),
})

/** The text of a whole document. */
export const documentOf = (page: Html): string => `<!doctype html>\n${page[markup]}\n`

/** The text of a part of a document. */
export const partOf = (part: Html): string => part[markup]
