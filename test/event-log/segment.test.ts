/** Segments of every form that was ever written open to the same events; what is packed now opens to what it was made of. */
import { hash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { NewEvent } from '../../src/event-log/port.ts'
import { openSegment, packSegment, type SegmentRow } from '../../src/event-log/postgres/segment.ts'
import { segmentDictionary } from '../../src/event-log/postgres/segment-dictionary.ts'

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

describe('what was stored opens for ever', () => {
  // Never to be changed: the log is not rewritten.
  test.each([
    ['a text', Buffer.from(text)],
    [
      'a frame without a dictionary',
      Buffer.from(
        'KLUv/WC4AD0KABaXTCfgzlgHbEdhpHrGgPdoApXX/gI6X35IYcg5lpA/9u8swzyCGGaYIYQ/AEIAQQDvxOM8pfXntG9TYI18fGN2Zs3+eaZd1maqrD5+yzVTI2Qm559jFgliIRUKmHxFlrJQ8Hhaq62vdwBo44atDwLSxiVUMEyiTWAR3DgaAxVqymwIBm9ikWGteJgLywga0OOnxCQqjPtSKv+cmh7f1M5qu1mj2fmntZvjMe45NUw19Qrv8VlWzal5tmV13Pp6/LV5yj93OEBqAiWMCyQyMR4uzyGKRCSMB8VFGbe26fvHxWtsxbc5lcRaYuJ3AC4uPmEBRRenDOhkmViIkCwuCRoEN86zVCjVQ4CaQNPEcnnQyzbIYDkLejw+48ZUCiFteu3s++cQjtcIcC86FyVXgQ9yDmq8KAUAIMDCNIRh2FT6sRkipJ06Aw==',
        'base64',
      ),
    ],
    [
      'a frame with the first dictionary',
      Buffer.from(
        '/wEotS/9AAA9BgCSySMjIGl4AwDCmwzPVJG+xH7p30+BiyGrq4BCoU1So1AQgQSAFCYLBo0M5sUoAhniyYsPJvi10sByoDXOerFH38AHsNqKy7+A4omhveluZNv32K1UT+s/CGaciQRgrw7HeZBFKnhIQXI92ZwfD8vHc0qCsHQigIrIa9j9wedXlrdEEg06jXwlozHf4uqyQ5MoKBEACoQFQIBMIaFWWQnyAW0MlASwaDe22lxqMDO+0Ki60+BAEAPJFwlkq8CjwADBu/ZPCQQC',
        'base64',
      ),
    ],
  ])('%s', (_, stored) => {
    expect(openSegment(rowOf(stored, ofEvent))).toEqual([
      { ...event, position: 12n, stream: 'ledger-org_A', revision: 7, recordedAtMs: 1_795_446_681_633 },
    ])
  })

  test('the dictionary is the one that segments were packed with', () => {
    expect(hash('sha256', segmentDictionary, 'base64url')).toBe('J9ytmgtBbFgCBqzOdRBpnEmUZgvOR5e3jnmHn3bd2sY')
  })
})

describe('what is packed now', () => {
  test('a single call takes less than half of its text', () => {
    const { events } = packSegment([event])
    expect(events.length).toBeLessThan(text.length / 2)
  })

  test('opens to what it was made of, of any length and any text', () => {
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
        expect(packed.events.length).toBeLessThanOrEqual(packed.bytes)
      }),
      { seed: 7, numRuns: 200 },
    )
  })

  test('what nothing can shorten is stored as it is', () => {
    const { events, bytes } = packSegment([{ id: event.id, type: 'A', data: '1', metadata: '2' }])
    expect(events.toString()).toBe('A\x1e1\x1e2')
    expect(bytes).toBe(5)
  })
})
