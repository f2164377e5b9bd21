import { styleText } from 'node:util'
import type { Sections } from '../administration/declare.ts'

export type Row = Readonly<Record<string, unknown>>

const unsafe = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/**
 * Replaces the characters that would move a terminal's cursor, or change the order of what it shows. Needed for all text that
 * can contain values from outside, because events and rows can be older than the rules for names, and reasons come from other software.
 */
export const plain = (text: string): string => text.replace(unsafe, '\u{fffd}')

/** Returns JSON text with the same value in which these characters are escaped. JSON itself does not escape all of them. */
export const plainJson = (json: string): string =>
  json.replace(unsafe, (found) =>
    found === '\n' ? found : `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )

/** Returns a value as a single line. Elements and members are separated by commas; an absent value is a dash. */
const cell = (value: unknown): string => {
  if (value === null || value === undefined) return '-'
  if (Array.isArray(value)) return value.length === 0 ? '-' : value.map(cell).join(', ')
  if (typeof value === 'object')
    return Object.entries(value)
      .map(([name, member]) => `${name} ${cell(member)}`)
      .join(', ')
  return plain(String(value))
}

/** Cuts a string to at most `max` characters. A cut string ends in an ellipsis. */
export const cut = (text: string, max: number): string => {
  const characters = [...text]
  return characters.length <= max ? text : `${characters.slice(0, max - 1).join('')}…`
}

/** Longer strings are cut in tables. --json shows the whole strings. */
export const nameCharsMax = 40

/** Returns a table with headings as lines; `none` if there are no rows. */
export const table = (rows: readonly Row[]): string[] => {
  if (rows.length === 0) return ['none']
  const names = [...new Set(rows.flatMap(Object.keys))]
  // Not `Math.max(...)`, because a function takes about 100,000 arguments at most.
  const widths = names.map((name) =>
    rows.reduce((widest, row) => Math.max(widest, cell(row[name]).length), name.length),
  )
  const line = (cells: readonly string[]): string =>
    cells
      .map((text, i) => text.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
  return [
    styleText('bold', line(names), { stream: process.stdout }),
    ...rows.map((row) => line(names.map((name) => cell(row[name])))),
  ]
}

/** Returns one line per member, with aligned values. */
export const members = (row: Row): string[] => {
  const width = Math.max(0, ...Object.keys(row).map((name) => name.length))
  return Object.entries(row).map(([name, value]) => `${`${name}:`.padEnd(width + 1)} ${cell(value)}`)
}

/** Returns the sections of an answer: its members, and below them each of its lists as a table with a heading. */
export const sectionsOf = (json: object): Sections => {
  if (Array.isArray(json)) return [json]
  const isList = (value: unknown): value is object[] => Array.isArray(value) && typeof value[0] === 'object'
  const { lists = [], figures = [] } = Object.groupBy(Object.entries(json), ([, value]) =>
    isList(value) ? 'lists' : 'figures',
  )
  return [...(figures.length === 0 ? [] : [Object.fromEntries(figures)]), ...lists.flat()]
}

/** Returns the lines of sections, with an empty line between sections, but not below a heading. */
export const sectionLines = (sections: Sections): string[] =>
  sections.flatMap((section, i) => [
    ...(i === 0 || typeof sections[i - 1] === 'string' ? [] : ['']),
    ...(typeof section === 'string'
      ? [plain(section)]
      : Array.isArray(section)
        ? table(section as Row[])
        : members({ ...section })),
  ])
