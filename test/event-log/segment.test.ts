/** A segment unpacks to the events from which it was made, and the dictionary of its frames never changes. */
import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createZstdDecompress, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { EventsUnreadable, type NewEvent } from '../../src/event-log/port.ts'
import { keptZstd, openSegment, packSegment, type SegmentRow } from '../../src/event-log/postgres/segment.ts'
import { randomCases } from '../support/exhaustive.ts'

const event: NewEvent = {
  id: 'c139d469-c70e-5b44-a8d0-e60e17b7f2c7',
  type: 'KeyUsed',
  data: '{"key_id":"IQMo0ktgPx9o95Wm","capability":"ip_lookup","outcome":"answered","facts":{"kind":"ip_lookup","success":true,"country_code":"DE","address_hmac":"-6Gpmkg2xi3tzH2JLylDETB67q30mjuFmmTO1q5wI3c"}}',
  metadata:
    '{"schema_version":1,"request_id":"01M84FCC0V2YX4DC9Y4F3HE3V7","actor":"key:IQMo0ktgPx9o95Wm","effective_at":"2026-11-23T15:11:21.627Z","recorded_at":"2026-11-23T15:11:21.633Z","digest":"8-f1fR3yp2-2YWHD-HEA8_MTW2vy3-uOYz5bQjWDdJE"}',
}
const text = `${event.type}\x1e${event.data}\x1e${event.metadata}`

const rowOf = (
  events: Buffer,
  packed: Pick<SegmentRow, 'count' | 'bytes'> & { ids: string },
): SegmentRow => ({
  last_position: '12',
  last_revision: '7',
  count: packed.count,
  bytes: packed.bytes,
  recorded: '1795446681633',
  stream: 'ledger-org_A',
  ids: Buffer.from(packed.ids, 'hex'),
  events,
})
const ofEvent = { count: 1, bytes: text.length, ids: event.id.replaceAll('-', '') }

test('the dictionary is the one with which every segment was packed', () => {
  const file = readFileSync(new URL('../../src/event-log/postgres/segment-dictionary.bin', import.meta.url))
  expect(hash('sha256', file, 'base64url')).toBe('jnPqacW1-KGOjyKRAtAlQZxjgcGXwhOQmJV6JJ89T_4')
})

describe('a segment', () => {
  test('from release 1.0.0 can be unpacked', () => {
    const frame =
      'KLUv/QAAPQYAkskjIyBpeAMAwpsMz1SRvsR+6d9PgYshq6uAQqFNUqNQEIEEgBQmCwaNDObFKAIZ4smLDyb4tdLAcqA1znqxR9/AB7Daisu/gOKJob3pbmTb99itVE/rPwhmnIkEYK8Ox3mQRSp4SEFyPdmcHw/Lx3NKgrB0IoCKyGvY/cHnV5a3RBINOo18JaMx3+LqskOTKCgRAAqEBUCATCGhVlkJ8gFtDJQEsGg3ttpcajAzvtCoutPgQBADyRcJZKvAo8AAwbv2TwkEAg=='
    expect(openSegment(rowOf(Buffer.from(frame, 'base64'), ofEvent))).toEqual([
      { ...event, position: 12n, stream: 'ledger-org_A', revision: 7, recordedAtMs: 1_795_446_681_633 },
    ])
  })

  test('with a single call takes up less than half the space of its text', () => {
    const { events } = packSegment([event])
    expect(events.length).toBeLessThan(text.length / 2)
  })

  test('unpacks to its events, of any length and with any text', () => {
    const json = fc.json().filter((value) => !value.includes('\x1e'))
    const some = fc.record({
      id: fc.uuid(),
      type: fc.constantFrom('KeyUsed', 'CreditCharged', 'Ünïcode'),
      data: fc.oneof(json, fc.constant(event.data)),
      metadata: fc.oneof(json, fc.constant(event.metadata)),
    })
    fc.assert(
      fc.property(fc.array(some, { minLength: 1, maxLength: 80 }), (events) => {
        const packed = packSegment(events)
        const row = rowOf(packed.events, { ...packed, count: events.length })
        expect(
          openSegment(row).map(({ id, type, data, metadata }) => ({ id, type, data, metadata })),
        ).toEqual(events)
      }),
      { seed: 7, numRuns: randomCases(200) },
    )
  })
})

describe('the context that is reused for all segments', () => {
  const packed = packSegment([event])
  const row = rowOf(packed.events, ofEvent)
  const damaged = Buffer.from(packed.events)
  damaged[20] = (damaged[20] ?? 0) ^ 0xff

  const faults: [string, SegmentRow][] = [
    ['is cut by one byte', rowOf(packed.events.subarray(0, -1), ofEvent)],
    ['is cut after its first bytes', rowOf(packed.events.subarray(0, 4), ofEvent)],
    ['holds a damaged byte', rowOf(damaged, ofEvent)],
    ['is longer than its row says', rowOf(packed.events, { ...ofEvent, bytes: text.length - 1 })],
    ['is much longer than its row says', rowOf(packed.events, { ...ofEvent, bytes: 1 })],
    ['is shorter than its row says', rowOf(packed.events, { ...ofEvent, bytes: text.length + 1 })],
    ['holds an empty frame', rowOf(zstdCompressSync(''), ofEvent)],
  ]
  test.each(faults)('a segment that %s is refused, and the next segment is unpacked', (_, faulty) => {
    for (let n = 0; n < 2; n++) {
      expect(() => openSegment(faulty)).toThrow(EventsUnreadable)
      expect(openSegment(row)).toHaveLength(1)
    }
  })

  test('packs the same text to the same bytes, no matter what was packed before', () => {
    const others = [100_000, 1, 30_000].map((length) =>
      packSegment([{ ...event, data: JSON.stringify('x'.repeat(length)) }, event]),
    )
    expect(others.map(({ events }) => events.length < 1_000)).toEqual([true, true, true])
    expect(packSegment([event]).events).toEqual(packed.events)
  })

  test('an incompressible text for the longest segment fits', () => {
    const noise = hash('sha512', text, 'hex')
    let data = ''
    for (let n = 0; data.length < 900_000; n++) data += hash('sha512', `${noise}${n}`, 'base64')
    const { events, bytes } = packSegment([{ ...event, data }])
    expect(openSegment(rowOf(events, { ...ofEvent, bytes }))[0]?.data).toBe(data)
  })

  test('without support in Node.js, the documented function is used', () => {
    const decompress = keptZstd(
      () => {
        const stream = createZstdDecompress()
        Reflect.set(stream, '_handle', {})
        return stream
      },
      (input, room) => zstdDecompressSync(input, { maxOutputLength: room }),
    )
    expect(decompress(zstdCompressSync(text), text.length + 1).toString()).toBe(text)
    expect(() => decompress(packed.events, text.length + 1)).toThrow()
  })
})
