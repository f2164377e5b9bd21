import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { BaseSequencer, type TestSequencerConstructor, type TestSpecification } from 'vitest/node'

/**
 * Begins with the files named, in this order: a file that takes long and begins last is waited for by everything else, and a
 * fresh checkout remembers no durations. Throws where a file named is not there any more.
 */
export const longestFirst = (root: string, names: readonly string[]): TestSequencerConstructor => {
  const gone = names.filter((name) => !existsSync(join(root, name)))
  if (gone.length > 0) throw new Error(`the order of the tests names what is gone: ${gone.join(', ')}`)
  const place = new Map(names.map((name, n) => [join(root, name), n]))
  const placeOf = ({ moduleId }: TestSpecification): number => place.get(moduleId) ?? names.length
  return class extends BaseSequencer {
    override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
      const sorted = await super.sort(files)
      return sorted.toSorted((a, b) => placeOf(a) - placeOf(b))
    }
  }
}
