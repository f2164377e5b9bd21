import { readdirSync, readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname, join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Comment, type Node, parse, type Token } from 'acorn'

/** Every source file, read once: its text, its syntax tree and its imports. */

export const root = fileURLToPath(new URL('../..', import.meta.url))

export const readText = (path: string): string => readFileSync(join(root, path), 'utf8')

/** A path relative to the repository, with slashes. */
export const filesUnder = (folder: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .sort()

export type Source = {
  /** Relative to the repository, with slashes. */
  readonly path: string
  readonly text: string
  /** The text without comments, but with strings. */
  readonly code: string
  /** The text without comments and without the content of strings and regular expressions. */
  readonly bare: string
  /** The syntax tree without types. Positions are those of `text`. */
  readonly program: Syntax
}

/** The members of acorn's nodes that the rules use. */
export type Syntax = Node & {
  readonly async?: boolean
  readonly generator?: boolean
  readonly name?: string
  readonly object?: Syntax
  readonly property?: Syntax
  readonly computed?: boolean
  readonly callee?: Syntax
  readonly arguments?: readonly Syntax[]
  readonly body?: unknown
  readonly declaration?: Syntax | null
  readonly declarations?: readonly Syntax[]
  readonly kind?: string
  readonly id?: Syntax | null
  readonly init?: Syntax | null
  readonly method?: boolean
  readonly key?: Syntax
  readonly value?: unknown
}

const isNode = (value: object): value is Syntax => 'type' in value && typeof value.type === 'string'

/** Visits a node and everything below it, parents first. */
export const walk = (node: unknown, visit: (node: Syntax) => void): void => {
  if (typeof node !== 'object' || node === null) return
  if (isNode(node)) visit(node)
  for (const child of Object.values(node)) if (typeof child === 'object') walk(child, visit)
}

type Range = { readonly start: number; readonly end: number }

const blanked = (text: string, ranges: readonly Range[]): string => {
  let result = ''
  let at = 0
  for (const { start, end } of [...ranges].sort((a, b) => a.start - b.start)) {
    result += text.slice(at, start) + text.slice(start, end).replaceAll(/[^\n]/g, ' ')
    at = end
  }
  return result + text.slice(at)
}

/** Node replaces types with blanks, so positions in acorn's tree are those of the text. */
const parsed = (path: string): Source => {
  const text = readText(path)
  const script = stripTypeScriptTypes(text)
  const comments: Comment[] = []
  const tokens: Token[] = []
  const program = parse(script, {
    ecmaVersion: 'latest',
    sourceType: 'module',
    locations: true,
    onComment: comments,
    onToken: tokens,
  }) as Syntax
  const inner = tokens
    .filter(({ type: { label } }) => ['string', 'template', 'regexp'].includes(label))
    .map(({ start, end, type: { label } }) =>
      label === 'template' ? { start, end } : { start: start + 1, end: end - 1 },
    )
  const types = typesOf(text, script)
  const code = overlaid(blanked(script, comments), types)
  return { path, text, code, bare: overlaid(blanked(script, [...comments, ...inner]), types), program }
}

/** The types in the text, at their positions, without comments and strings. */
const typesOf = (text: string, script: string): string => {
  let types = ''
  for (let i = 0; i < text.length; i++) types += text[i] === script[i] && text[i] !== '\n' ? ' ' : text[i]
  return types.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, (comment) => comment.replaceAll(/[^\n]/g, ' '))
}

const overlaid = (script: string, types: string): string => {
  let both = ''
  for (let i = 0; i < script.length; i++) both += types[i] === ' ' || types[i] === '\n' ? script[i] : types[i]
  return both
}

const warn = process.emitWarning
// Node warns on every use that the function is experimental, but the version of Node is pinned.
process.emitWarning = () => undefined
export const sources: readonly Source[] = [...filesUnder('src'), ...filesUnder('projections')]
  .filter((path) => path.endsWith('.ts'))
  .map(parsed)
process.emitWarning = warn

/** Every file under src and projections. */
export const allPaths: readonly string[] = [...filesUnder('src'), ...filesUnder('projections')]

export type Import = {
  readonly specifier: string
  readonly typeOnly: boolean
  /** The imported names as the target file exports them; `*` for all of them. */
  readonly names: readonly string[]
}

const listedNames = (clause: string): string[] =>
  (/\{([\s\S]*)\}/.exec(clause)?.[1] ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter(Boolean)

/** Imports, re-exports and dynamic imports in code without comments. */
export const importsOf = (code: string): Import[] => {
  const found: Import[] = []
  for (const [, typed, clause = '', specifier = ''] of code.matchAll(
    /^\s*(?:import|export)\s+(type\s+)?(?:([^'"();]*?)\s*from\s+)?['"]([^'"]+)['"]/gm,
  )) {
    const listed = listedNames(clause)
    const allTypes = listed.length > 0 && listed.every((name) => name.startsWith('type '))
    const names = listed.map((name) => name.replace(/^type\s+/, '').replace(/\s+as\s+.*$/, ''))
    const whole = /^\s*\*/.test(clause) || /,\s*\*/.test(clause)
    found.push({ specifier, typeOnly: typed !== undefined || allTypes, names: whole ? ['*'] : names })
  }
  for (const [, specifier = ''] of code.matchAll(/\bimport\(\s*['"]([^'"]+)['"]\s*\)/g))
    found.push({ specifier, typeOnly: false, names: ['*'] })
  return found
}

/** The target of a relative import, relative to the repository. */
export const targetOf = (path: string, { specifier }: Import): string => posix.join(dirname(path), specifier)

/** Returns a name such as `ledger`, `projections` or `capabilities/whoami`, or `top` for a file directly in src. */
export const folderOf = (path: string): string => {
  const [first = '', folder = '', slice = ''] = path.split('/')
  if (first === 'projections') return 'projections'
  if (folder.endsWith('.ts')) return 'top'
  if (folder !== 'capabilities') return folder
  return slice.endsWith('.ts') ? 'capabilities' : `capabilities/${slice}`
}
