import { describe, expect, test, vi } from 'vitest'
import { deadlineSignal, within } from '../../src/concurrency/deadline.ts'

const never = new Promise<never>(() => undefined)
const late = (): string => 'late'

describe('a wait with an end', () => {
  test('ends as the work does where that is sooner', async () => {
    expect(await within(Promise.resolve('done'), { waitMs: 60_000 }, late)).toBe('done')
    await expect(within(Promise.reject(new Error('broken')), { waitMs: 60_000 }, late)).rejects.toThrow(
      'broken',
    )
  })

  test('ends with what the caller says where the time is over, also where that is thrown', async () => {
    expect(await within(never, { waitMs: 1 }, late)).toBe('late')
    const refuse = (): never => {
      throw new Error('too late')
    }
    await expect(within(never, { waitMs: 1 }, refuse)).rejects.toThrow('too late')
  })

  test('ends with its signal, now or before', async () => {
    const stop = new AbortController()
    const waiting = within(never, { waitMs: 60_000, signal: stop.signal }, late)
    stop.abort()
    expect(await waiting).toBe('late')
    expect(await within(never, { signal: AbortSignal.abort() }, late)).toBe('late')
  })

  test('without a limit goes on until the work is done', async () => {
    expect(await within(Promise.resolve(7), {}, late)).toBe(7)
  })

  test('leaves no timer and no listener behind', async () => {
    const cancel = vi.fn()
    const { signal } = new AbortController()
    const removed = vi.spyOn(signal, 'removeEventListener')
    await within(Promise.resolve(), { waitMs: 5, signal, after: () => cancel }, late)
    expect(cancel).toHaveBeenCalledOnce()
    expect(removed).toHaveBeenCalledOnce()
  })

  test('is by the clock it is given', async () => {
    const timers: (() => void)[] = []
    const after = (_ms: number, run: () => void) => {
      timers.push(run)
      return () => undefined
    }
    const waiting = within(never, { waitMs: 86_400_000, after }, late)
    for (const run of timers) run()
    expect(await waiting).toBe('late')
  })

  test('does not make a failure that comes later one that nothing handles', async () => {
    const { promise, reject } = Promise.withResolvers<never>()
    expect(await within(promise, { waitMs: 1 }, late)).toBe('late')
    reject(new Error('unheard'))
    await new Promise((resolve) => setImmediate(resolve))
  })
})

test('a signal with a deadline ends with the one it was given too', () => {
  const stop = new AbortController()
  const signal = deadlineSignal(60_000, stop.signal)
  expect(signal.aborted).toBe(false)
  stop.abort()
  expect(signal.aborted).toBe(true)
  expect(deadlineSignal(60_000).aborted).toBe(false)
})
