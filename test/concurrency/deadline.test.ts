import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { describe, expect, test, vi } from 'vitest'
import { deadlineSignal, within } from '../../src/concurrency/deadline.ts'

const never = new Promise<never>(() => undefined)
const late = (): string => 'late'

describe('a wait with an end', () => {
  test('ends when the work ends, if that is earlier', async () => {
    expect(await within(Promise.resolve('done'), { waitMs: 60_000 }, late)).toBe('done')
    await expect(within(Promise.reject(new Error('broken')), { waitMs: 60_000 }, late)).rejects.toThrow(
      'broken',
    )
  })

  test('ends with the value of the caller when the time is over, also if the caller throws it', async () => {
    expect(await within(never, { waitMs: 1 }, late)).toBe('late')
    const refuse = (): never => {
      throw new Error('too late')
    }
    await expect(within(never, { waitMs: 1 }, refuse)).rejects.toThrow('too late')
  })

  test('an answer that arrived in time counts, even if the event loop was too busy to read it', async () => {
    const server = createServer((socket) => socket.end('answer')).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const socket = connect(port, '127.0.0.1')
    const ready = once(server, 'connection')
    await Promise.all([ready, once(socket, 'connect')])
    const answered = once(socket, 'data').then(String)
    const answer = within(answered, { waitMs: 20 }, late)
    // Nothing else runs in this thread for so long.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
    expect(await answer).toBe('answer')
    socket.destroy()
    server.close()
  })

  test('ends when its signal is aborted, even if that was before it began', async () => {
    const stop = new AbortController()
    const waiting = within(never, { waitMs: 60_000, signal: stop.signal }, late)
    stop.abort()
    expect(await waiting).toBe('late')
    expect(await within(never, { signal: AbortSignal.abort() }, late)).toBe('late')
  })

  test('without a limit, continues until the work is done', async () => {
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

  test('uses the clock it is given', async () => {
    const timers: (() => void)[] = []
    const after = (_ms: number, run: () => void) => {
      timers.push(run)
      return () => undefined
    }
    const waiting = within(never, { waitMs: 86_400_000, after }, late)
    for (const run of timers) run()
    expect(await waiting).toBe('late')
  })

  test('does not leave a later failure unhandled', async () => {
    const { promise, reject } = Promise.withResolvers<never>()
    expect(await within(promise, { waitMs: 1 }, late)).toBe('late')
    reject(new Error('late'))
    await new Promise((resolve) => setImmediate(resolve))
  })
})

test('a signal with a deadline also ends with the signal it was made from', () => {
  const stop = new AbortController()
  const signal = deadlineSignal(60_000, stop.signal)
  expect(signal.aborted).toBe(false)
  stop.abort()
  expect(signal.aborted).toBe(true)
  expect(deadlineSignal(60_000).aborted).toBe(false)
})
