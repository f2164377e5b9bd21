import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createFrameReader } from '../../src/peers/frames.ts'
import { frame } from './scene.ts'

/** What a reader found in chunks, and why it stopped. */
const readAll = (chunks: readonly Buffer[], bytesMax = 300_000) => {
  const texts: string[] = []
  const read = createFrameReader({ bytesMax, onText: (text) => texts.push(text) < 1_000 })
  const faults = chunks.map((chunk) => read(chunk)).filter((fault) => fault !== null)
  return { texts, faults }
}

const cutAt = (bytes: Buffer, places: readonly number[]): Buffer[] => {
  const sorted = [0, ...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length]
  return sorted.slice(1).map((end, index) => bytes.subarray(sorted[index], end))
}

describe('frames', () => {
  test('wherever the bytes are cut, the same texts come out', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.integer({ min: 0, max: 90_000 }).map((length) => 'ä'.repeat(length / 2)),
    )
    fc.assert(
      fc.property(
        fc.array(text, { minLength: 1, maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 40 }),
        (texts, places) => {
          const expected = texts.map((one) => Buffer.from(one).toString())
          const bytes = Buffer.concat(expected.map(frame))
          expect(readAll(cutAt(bytes, places))).toEqual({ texts: expected, faults: [] })
        },
      ),
      { numRuns: 50 },
    )
  })

  test('one byte at a time', () => {
    const bytes = Buffer.concat([frame('[1]'), frame(''), frame('["é"]')])
    expect(readAll([...bytes].map((byte) => Buffer.from([byte]))).texts).toEqual(['[1]', '', '["é"]'])
  })

  test('another version and a length over the bound are faults before anything of it is kept', () => {
    expect(readAll([Buffer.from('GET / HTTP/1.1\r\n')])).toEqual({
      texts: [],
      faults: ['a frame of version 71'],
    })
    const huge = Buffer.from([1, 0xff, 0xff, 0xff, 0xff, 0x5b])
    expect(readAll([huge])).toEqual({ texts: [], faults: [`a frame of ${0xffffffff} bytes`] })
    expect(readAll([huge.subarray(0, 3), huge.subarray(3)]).faults).toHaveLength(1)
    expect(readAll([frame('x'.repeat(10))], 10).texts).toHaveLength(1)
    expect(readAll([frame('x'.repeat(11))], 10).faults).toEqual(['a frame of 11 bytes'])
  })

  test('what a frame announces is no memory before it comes', () => {
    const before = process.memoryUsage().arrayBuffers
    const begun = Buffer.from([1, 0x0f, 0, 0, 0, 0x5b])
    const readers = Array.from({ length: 100 }, () =>
      createFrameReader({ bytesMax: 0x0fffffff, onText: () => true }),
    )
    for (const read of readers) expect(read(begun)).toBeNull()
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1_000_000)
  })

  test('a reader that is told to stop reads nothing more of what it has', () => {
    const texts: string[] = []
    const read = createFrameReader({
      bytesMax: 10,
      onText: (text) => {
        texts.push(text)
        return false
      },
    })
    expect(read(Buffer.concat([frame('a'), frame('b')]))).toBeNull()
    expect(texts).toEqual(['a'])
  })
})
