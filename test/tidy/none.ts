import { expect } from 'vitest'

type Found = ReadonlyMap<string, readonly string[] | number>

/** Fails if a rule is broken, and names every file that breaks it. */
export const expectNone = (rule: string, found: Found): void => {
  const broken = [...found].map(
    ([path, what]) => `${path}: ${typeof what === 'number' ? what : what.join(', ')}`,
  )
  expect(broken, rule).toEqual([])
}
