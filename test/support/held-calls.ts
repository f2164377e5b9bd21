import { vi } from 'vitest'

/**
 * Makes calls of a method wait until `release`, if their first argument is accepted, and counts them. Leaving the block releases
 * them and restores the method.
 */
export const holdCalls = <Of extends object>(
  of: Of,
  name: keyof Of & string,
  isHeld: (first: string) => boolean,
): Disposable & { readonly release: () => void; readonly count: () => number } => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const methods = of as Record<string, (...asked: unknown[]) => Promise<unknown>>
  const original = methods[name]?.bind(of)
  let count = 0
  const spy = vi.spyOn(methods, name).mockImplementation(async (...asked) => {
    if (isHeld(String(asked[0]))) {
      count++
      await released
    }
    return original?.(...asked)
  })
  const dispose = () => {
    release()
    spy.mockRestore()
  }
  return { release, count: () => count, [Symbol.dispose]: dispose }
}
