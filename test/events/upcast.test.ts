/** Old events are read in their current version, one version at a time and without guessing. */
import { describe, expect, test } from 'vitest'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import {
  catalogue,
  checkEventData,
  currentVersion,
  type EventType,
  isEventType,
} from '../../src/events/catalogue.ts'
import { UnknownEventType, type Upcast, upcast } from '../../src/events/upcast.ts'

const revoked = { key_id: 'Hq3Zk9Lw2Xc7Vb1N', reason: 'leaked' }

const pretend = (...steps: Upcast[]): Partial<Record<EventType, readonly Upcast[]>> => ({
  ApiKeyRevoked: steps,
})
const rename: Upcast = (data) => {
  const { reason, ...rest } = data as typeof revoked
  return { ...rest, why: reason }
}
const shout: Upcast = (data) => {
  const { why, ...rest } = data as { key_id: string; why: string }
  return { ...rest, why: why.toUpperCase() }
}

describe('a known version', () => {
  test('the current version is returned unchanged: the same object, not a copy', () => {
    const event = upcast('ApiKeyRevoked', 1, revoked)
    expect(event).toEqual({ type: 'ApiKeyRevoked', data: revoked })
    expect(event.data).toBe(revoked)
  })

  test('an older version takes the step to the second version', () => {
    expect(upcast('ApiKeyRevoked', 1, revoked, pretend(rename))).toEqual({
      type: 'ApiKeyRevoked',
      data: { key_id: revoked.key_id, why: 'leaked' },
    })
  })

  test('takes every step after its own, in order, and no earlier one', () => {
    const steps = pretend(rename, shout)
    const newest = { type: 'ApiKeyRevoked', data: { key_id: revoked.key_id, why: 'LEAKED' } }
    expect(upcast('ApiKeyRevoked', 1, revoked, steps)).toEqual(newest)
    expect(upcast('ApiKeyRevoked', 2, { key_id: revoked.key_id, why: 'leaked' }, steps)).toEqual(newest)
  })

  test('is not changed in place', () => {
    const data = Object.freeze({ ...revoked })
    upcast('ApiKeyRevoked', 1, data, pretend(rename, shout))
    expect(data).toEqual(revoked)
  })

  test('takes the steps of its own type only', () => {
    expect(upcast('CreditExpired', 1, { amount: '1' }, pretend(rename))).toEqual({
      type: 'CreditExpired',
      data: { amount: '1' },
    })
  })
})

describe('an unknown event is refused', () => {
  test.each(['CreditStolen', '', 'creditCharged', 'constructor', '__proto__', 'toString'])(
    'type %j',
    (type) => {
      expect(isEventType(type)).toBe(false)
      expect(() => upcast(type, 1, {})).toThrow(UnknownEventType)
    },
  )

  test.each([2, 3, 0, -1, Number.NaN, 1.5])('version %d', (version) => {
    expect(() => upcast('ApiKeyRevoked', version, revoked)).toThrow(UnknownEventType)
    expect(() => checkEventData('ApiKeyRevoked', version, revoked)).toThrow(/no version/)
  })

  test('a version beyond the last step, and a step to a version the catalogue does not have', () => {
    expect(() => upcast('ApiKeyRevoked', 3, revoked, pretend(rename))).toThrow(UnknownEventType)
    expect(() => upcast('ApiKeyRevoked', 0, revoked, pretend(rename))).toThrow(UnknownEventType)
    expect(() => upcast('ApiKeyRevoked', 2, revoked, pretend(rename))).toThrow(UnknownEventType)
  })

  test('a recorded event without a version, or with bytes that are not JSON', () => {
    const recorded = {
      id: '',
      position: 1n,
      stream: 'key-a',
      revision: 0,
      recordedAtMs: 0,
      type: 'ApiKeyRevoked',
    }
    const data = JSON.stringify(revoked)
    const metadata = '{"schema_version":1,"actor":"cli","effective_at":"2027-01-01T00:00:00.000Z"}'
    expect(() => decodeEvent({ ...recorded, data: '{', metadata })).toThrow(SyntaxError)
    expect(() => decodeEvent({ ...recorded, type: 'Unheard', data, metadata })).toThrow(
      new UnknownEventType(
        'event type Unheard is unknown to this release; a newer release or other software wrote it',
      ),
    )
    // Events that no release of ours writes belong to other software. The error names the stream, the type and the remedy.
    for (const foreign of ['', '{', '{}', 'null'])
      expect(() => decodeEvent({ ...recorded, data, metadata: foreign })).toThrow(
        /^event 0 of key-a, of type "ApiKeyRevoked", does not belong to this service\. .*EVENT_LOG_PREFIX$/,
      )
  })
})

test('every type is written in its last version, counted from 1', () => {
  for (const type of Object.keys(catalogue)) {
    if (!isEventType(type)) throw new Error(type)
    expect(currentVersion(type)).toBe(catalogue[type].length)
    // Data in the first version must reach the current version. If a step between versions were missing, this would throw.
    expect(() => upcast(type, 1, {})).not.toThrow(UnknownEventType)
  }
})
