import { describe, expect, test } from 'vitest'
import { expectNone } from './none.ts'
import { linesOf, type Source, type Syntax, sources, walk } from './source.ts'

/** How long files and functions may be, and how functions are written. */

const fileLinesMax = 300
const functionLinesMax = 70

const isFunction = ({ type }: Syntax): boolean =>
  ['ArrowFunctionExpression', 'FunctionExpression', 'FunctionDeclaration'].includes(type)

const longestFunction = ({ program }: Source): number => {
  let longest = 0
  walk(program, (node) => {
    if (isFunction(node)) longest = Math.max(longest, linesOf(node))
  })
  return longest
}

/** A generator cannot be an arrow; a function that asserts has to be declared where its type is written out. */
const mayBeDeclared = (text: string, node: Syntax): boolean =>
  node.generator === true || /^[^{]*\): asserts /.test(text.slice(node.start, node.end))

const declaredFunctions = ({ text, program }: Source): string[] => {
  const found: string[] = []
  for (const statement of Array.isArray(program.body) ? (program.body as Syntax[]) : []) {
    const declared = statement.declaration ?? statement
    if (declared.type === 'FunctionDeclaration' && !mayBeDeclared(text, declared))
      found.push(declared.id?.name ?? 'without a name')
    for (const { id, init } of declared.declarations ?? [])
      if (init?.type === 'FunctionExpression' && !mayBeDeclared(text, init)) found.push(id?.name ?? '')
  }
  return found
}

const foundIn = <T extends readonly string[] | number>(
  measure: (source: Source) => T,
  isBad: (value: T) => boolean,
): Map<string, T> =>
  new Map(
    sources
      .map((source) => [source.path, measure(source)] as const)
      .filter(([, measured]) => isBad(measured)),
  )

describe('sizes', () => {
  test('functions are found', () => {
    expect(sources.filter((source) => longestFunction(source) > 0).length).toBeGreaterThan(100)
  })

  test(`files have at most ${fileLinesMax} lines`, () => {
    expectNone(
      'lines of a file',
      foundIn(
        ({ text }) => text.split('\n').length - 1,
        (lines) => lines > fileLinesMax,
      ),
    )
  })

  test(`functions have at most ${functionLinesMax} lines`, () => {
    expectNone(
      'lines of a function',
      foundIn(longestFunction, (lines) => lines > functionLinesMax),
    )
  })

  test('functions on the top of a file are const arrows', () => {
    expectNone(
      'top-level functions that are no const arrows',
      foundIn(declaredFunctions, (names) => names.length > 0),
    )
  })
})
