/** Streamed answers to readers that are fast, slow or disconnected. */
import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { type ReaderBounds, streamed, type Write } from '../../src/call/streamed.ts'

const piece = 'x'.repeat(64 * 1024)
const hour = 3_600_000

const writing = (bounds: ReaderBounds, pieces = 1_000) => {
  const state = { written: 0, ended: Promise.resolve<unknown>(null) }
  const body = streamed(async (write: Write) => {
    const all = async () => {
      for (; state.written < pieces; state.written++) await write(piece)
    }
    state.ended = all().then(
      () => null,
      (error: unknown) => error,
    )
    const error = await state.ended
    if (error !== null) throw error
  }, bounds)
  return { state, body }
}

describe('a streamed answer', () => {
  test('is complete for a client that reads it', async () => {
    const { state, body } = writing({ silenceMaxMs: hour, graceMs: hour, bytesPerSecondMin: 1 }, 20)
    let length = 0
    for await (const chunk of body) length += chunk.length
    expect(length).toBe(20 * piece.length)
    expect(await state.ended).toBeNull()
  })

  test('ends if the client reads nothing, after little was written', async () => {
    const { state, body } = writing({ silenceMaxMs: 50, graceMs: hour, bytesPerSecondMin: 1 })
    expect(await state.ended).toMatchObject({ message: 'the answer was not read in time' })
    expect(body.destroyed).toBe(true)
    expect(state.written).toBeLessThan(4)
  })

  test('ends if the client reads too slowly', async () => {
    const bounds = { silenceMaxMs: hour, graceMs: 100, bytesPerSecondMin: 1024 * 1024 * 1024 }
    const { state, body } = writing(bounds)
    const drip = setInterval(() => body.read(16 * 1024), 10)
    expect(await state.ended).toMatchObject({ message: 'the answer was not read in time' })
    clearInterval(drip)
    expect(body.destroyed).toBe(true)
    expect(state.written).toBeLessThan(20)
  })

  test('does not count the time that the next piece takes', async () => {
    const bounds = { silenceMaxMs: 1, graceMs: 0, bytesPerSecondMin: Number.POSITIVE_INFINITY }
    const slow = streamed(async (write) => {
      for (let i = 0; i < 3; i++) {
        await new Promise((resolve) => setTimeout(resolve, 20))
        await write('x')
      }
    }, bounds)
    let text = ''
    for await (const chunk of slow) text += String(chunk)
    expect(text).toBe('xxx')
  })

  test('ends when the client disconnects', async () => {
    const { state, body } = writing({ silenceMaxMs: hour, graceMs: hour, bytesPerSecondMin: 1 })
    body.destroy()
    expect(await state.ended).toBeInstanceOf(Error)
  })

  test('is cut off if it cannot be produced, even before the client reads', async () => {
    const body = streamed(async () => {
      throw new Error('no log')
    })
    await turn()
    await expect(body.toArray()).rejects.toThrow('no log')
  })
})
