import { stripTypeScriptTypes } from 'node:module'
import { runInNewContext } from 'node:vm'
import { type Node, parse } from 'acorn'

/**
 * Every regular expression in a source file: the literals, and those that `new RegExp` builds from the file's constants.
 * Expressions that cannot be analysed have a reason instead of a pattern.
 */

export type Expression = {
  /** The number of the line, starting at 1. */
  readonly line: number
  readonly text: string
  /** The pattern without set notation, which checkers cannot read; or the reason why there is no pattern. */
  readonly checked: { readonly pattern: string; readonly flags: string } | string
  /** The limit on the expression's input, from a comment `recheck: …` on its line or the line above; null without a comment. */
  readonly excuse: string | null
}

export const expressionsIn = (source: string): Expression[] => {
  const lines = source.split('\n')
  // Types become spaces, so lines and columns stay the same.
  const script = stripTypeScriptTypes(source, { mode: 'strip' })
  const program = parse(script, { ecmaVersion: 'latest', sourceType: 'module', locations: true })
  const constants = constantsOf(program, script)
  const found: Expression[] = []
  const add = (node: Any, checked: Expression['checked']): void => {
    const line = node.loc?.start.line ?? 0
    found.push({ line, text: script.slice(node.start, node.end), checked, excuse: excuseIn(lines, line) })
  }
  walk(program, (node) => {
    if (node.type === 'Literal' && node.regex) add(node, checkable(node.regex))
    if (node.type === 'NewExpression' || node.type === 'CallExpression') {
      const [first] = node.arguments ?? []
      if (node.callee?.name === 'RegExp') add(node, built(script.slice(node.start, node.end), constants))
      // These three methods make an expression from a text.
      else if (textTakers.has(node.callee?.property?.name ?? '') && isText(first))
        add(node, 'made from a text: write an expression')
    }
  })
  return found
}

type Any = Node & {
  readonly regex?: { readonly pattern: string; readonly flags: string }
  readonly callee?: { readonly name?: string; readonly property?: { readonly name?: string } }
  readonly arguments?: readonly Any[]
  readonly body?: readonly Any[]
  readonly declaration?: Any | null
  readonly declarations?: readonly Any[]
  readonly kind?: string
  readonly id?: { readonly name?: string }
  readonly init?: Any | null
}

const walk = (node: unknown, visit: (node: Any) => void): void => {
  if (typeof node !== 'object' || node === null) return
  if ('type' in node && typeof node.type === 'string') visit(node as Any)
  for (const child of Object.values(node)) if (typeof child === 'object') walk(child, visit)
}

const textTakers = new Set(['match', 'matchAll', 'search'])
const isText = (node: Any | undefined): boolean =>
  node !== undefined && (node.type === 'TemplateLiteral' || (node.type === 'Literal' && !node.regex))

const excuseIn = (lines: readonly string[], line: number): string | null => {
  for (const text of [lines[line - 1], lines[line - 2]]) {
    const excuse = /(?:\/\/|\*) recheck: (.{1,200})$/.exec(text ?? '')?.[1]
    if (excuse !== undefined) return excuse
  }
  return null
}

const constantsOf = (program: Node, script: string): ReadonlyMap<string, string> => {
  const constants = new Map<string, string>()
  for (const statement of (program as Any).body ?? []) {
    const declared = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement
    if (declared?.type !== 'VariableDeclaration' || declared.kind !== 'const') continue
    for (const { id, init } of declared.declarations ?? [])
      if (id?.name !== undefined && init) constants.set(id.name, script.slice(init.start, init.end))
  }
  return constants
}

const constantsMax = 20

/** Returns the text that an expression builds from the file's constants, without running the program. */
const built = (text: string, constants: ReadonlyMap<string, string>): Expression['checked'] => {
  let declarations = ''
  for (let tried = 0; tried <= constantsMax; tried++) {
    try {
      const made: unknown = runInNewContext(`${declarations}const made = ${text};[made.source, made.flags]`)
      const [pattern, flags] =
        Array.isArray(made) || typeof made === 'object' ? Object.values(made ?? {}) : []
      return checkable({ pattern: String(pattern), flags: String(flags) })
    } catch (error) {
      const missing = /^(\w{1,60}) is not defined$/.exec(
        error instanceof Error ? error.message : String(Object(error).message),
      )?.[1]
      const init = missing === undefined ? undefined : constants.get(missing)
      if (init === undefined) break
      declarations = `const ${missing} = ${init};${declarations}`
    }
  }
  return 'built at run time: build it from constants of the file'
}

/** Writes Unicode's set notation (flag v) as plain classes, which list the code points that each class matches. */
const checkable = ({ pattern, flags }: { pattern: string; flags: string }): Expression['checked'] => {
  if (!flags.includes('v')) return { pattern, flags }
  let plain = ''
  for (let at = 0; at < pattern.length; ) {
    const end = pattern[at] === '[' ? classEnd(pattern, at) : at + (pattern[at] === '\\' ? 2 : 1)
    const piece = pattern.slice(at, end)
    plain += pattern[at] === '[' ? rangesOf(new RegExp(`^${piece}$`, flags.replace('g', ''))) : piece
    at = end
  }
  return { pattern: plain, flags: flags.replace('v', 'u') }
}

const classEnd = (pattern: string, from: number): number => {
  let depth = 0
  for (let at = from; at < pattern.length; at++) {
    if (pattern[at] === '\\') at++
    else if (pattern[at] === '[') depth++
    else if (pattern[at] === ']' && --depth === 0) return at + 1
  }
  return pattern.length
}

const codePointMax = 0x10ffff

const rangesOf = (one: RegExp): string => {
  const ranges: string[] = []
  const written = (code: number): string => `\\u{${code.toString(16)}}`
  let start = -1
  for (let code = 0; code <= codePointMax + 1; code++) {
    const matches = code <= codePointMax && one.test(String.fromCodePoint(code))
    if (matches && start < 0) start = code
    if (matches || start < 0) continue
    ranges.push(`${written(start)}-${written(code - 1)}`)
    start = -1
  }
  return `[${ranges.join('')}]`
}
