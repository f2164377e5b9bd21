import { expect } from 'vitest'

/** What breaks a rule: by file, what or how much of it. */
type Found = ReadonlyMap<string, readonly string[] | number>

/** Fails where a rule is broken, with every file that breaks it. */
export const expectNone = (rule: string, found: Found): void => {
  const broken = [...found].map(
    ([path, what]) => `${path}: ${typeof what === 'number' ? what : what.join(', ')}`,
  )
  expect(broken, rule).toEqual([])
}
