import { describe, expect, test } from 'vitest'
import { capabilities } from '../../src/capabilities/index.ts'
import { expectNone } from './none.ts'
import { type Source, sources } from './source.ts'

/** A capability can be removed, because its texts are in its folder, its facts in `events` and its rules in `billing`. */

const mayName = /^src\/(capabilities|events|billing)\//

/**
 * The unambiguous names and paths of calls. A single word is often ambiguous, because an operator has an account too. A path
 * ends before its first parameter.
 */
const names = capabilities
  .flatMap(({ document: { tag, calls } }) => [tag, ...calls.flatMap((call) => [call.capability, call.path])])
  .filter((name) => /[_/]/.test(name))
  .map((name) => name.replace(/:.*/, ''))

const naming = new RegExp(`(?<![\\w/])(?:${[...new Set(names)].map(RegExp.escape).join('|')})(?![a-z_])`, 'g')

const namesIn = ({ code }: Source): string[] => code.match(naming) ?? []

describe('capabilities', () => {
  test('are described in their document.ts', () => {
    const documents = sources.filter(({ path }) => path.endsWith('/document.ts'))
    expect(documents.filter((source) => namesIn(source).length > 0)).toHaveLength(capabilities.length)
  })

  test('are named by no file outside their folders, events and billing', () => {
    expectNone(
      'names and paths of capabilities',
      new Map(
        sources
          .filter(({ path }) => !mayName.test(path))
          .map((source) => [source.path, namesIn(source)] as const)
          .filter(([, found]) => found.length > 0),
      ),
    )
  })
})
