/**
 * A sample of every event that a release has written: one file for each type and version, and for `KeyUsed` one for each kind of
 * facts. Files are added, never changed. If a sample cannot be read, old logs cannot be read either.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { chain, genesisDigest } from '../../src/event-log/hash-chain.ts'
import { eventJson } from '../../src/event-log/port.ts'
import { decodeEvent, encodeEvent } from '../../src/event-log/stored-event.ts'
import { callFacts } from '../../src/events/calls.ts'
import {
  catalogue,
  checkEventData,
  currentVersion,
  type EventType,
  isEventType,
} from '../../src/events/catalogue.ts'
import { eventMetadata } from '../../src/events/envelope.ts'
import { upcast } from '../../src/events/upcast.ts'

const folder = new URL('./samples/', import.meta.url)

const sampleFile = z.strictObject({
  type: z.string(),
  schema_version: z.int().positive(),
  data: z.record(z.string(), z.unknown()),
})

const samples = readdirSync(folder)
  .sort()
  .map((file) => {
    const {
      type,
      schema_version: version,
      data,
    } = sampleFile.parse(JSON.parse(readFileSync(new URL(file, folder), 'utf8')))
    if (!isEventType(type)) throw new Error(`${file}: ${type} is not in the catalogue`)
    return { file, type, version, data }
  })

const kindOf = ({ type, data }: { type: string; data: Record<string, unknown> }): string | undefined =>
  type === 'KeyUsed' ? z.object({ kind: z.string() }).parse(data.facts).kind : undefined

/** Members that a released schema makes optional. */
const optionalMembers: Partial<Record<EventType, readonly string[]>> = {
  KeyUsed: ['code', 'free_by', 'idempotent', 'request_fingerprint'],
}

describe('samples and catalogue agree, both ways', () => {
  const released = Object.entries(catalogue).flatMap(([type, versions]) =>
    versions.map((_, n) => `${type}.v${n + 1}`),
  )

  test('every released type and version has a sample', () => {
    expect([...new Set(samples.map(({ type, version }) => `${type}.v${version}`))].sort()).toEqual(
      released.sort(),
    )
  })

  test('every kind of facts of a call has a sample, and nothing else has', () => {
    const kinds = callFacts.options.map(({ shape }) => shape.kind.value)
    expect(
      samples
        .filter(({ type }) => type === 'KeyUsed')
        .map(kindOf)
        .sort(),
    ).toEqual([...kinds].sort())
  })

  test('every file is named after its content', () => {
    for (const sample of samples) {
      const kind = kindOf(sample)
      expect(sample.file).toBe(
        `${sample.type}.v${sample.version}${kind === undefined ? '' : `.${kind}`}.json`,
      )
    }
  })
})

describe.each(samples)('$file', ({ type, version, data }) => {
  test('fits its schema exactly: no member is unknown, dropped or changed', () => {
    expect(checkEventData(type, version, data)).toEqual(data)
  })

  test('a missing member is noticed', () => {
    for (const member of Object.keys(data)) {
      const { [member]: _, ...rest } = data
      const check = (): unknown => checkEventData(type, version, rest)
      if (optionalMembers[type]?.includes(member)) expect(check).not.toThrow()
      else expect(check, member).toThrow(z.ZodError)
    }
  })

  test('a member of another type is noticed', () => {
    for (const member of Object.keys(data))
      for (const wrong of [1.5, [[]], { unheard: 'of' }])
        expect(() => checkEventData(type, version, { ...data, [member]: wrong }), member).toThrow(z.ZodError)
  })

  test('is read from the log in its current version', () => {
    const event = upcast(type, version, data)
    expect(event.type).toBe(type)
    expect(checkEventData(type, currentVersion(type), event.data)).toEqual(event.data)
  })

  test('survives being written and read', () => {
    const event = upcast(type, version, data)
    const envelope = {
      id: '6f1c1f0e-8a1b-5c2d-9e3f-0123456789ab',
      actor: 'cli',
      effectiveAt: '2026-09-14T08:31:07.123Z',
      requestId: '01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
    }
    const written = encodeEvent(event, envelope)
    expect(written).toEqual({
      id: envelope.id,
      type,
      data: eventJson(event.data),
      metadata: `{"schema_version":${currentVersion(type)},"request_id":"01J8ZQ5V7N3K2M4P6R8T0W1X2Y","actor":"cli","effective_at":"2026-09-14T08:31:07.123Z"}`,
    })
    const place = { stream: 'ledger-a', revision: 0, previous: genesisDigest }
    const { event: chained } = chain(written, place, '2026-09-14T08:31:07.200Z')
    const read = decodeEvent({ ...chained, position: 1n, ...place, recordedAtMs: 0 })
    expect({ type: read.type, data: read.data }).toEqual(event)
    expect(eventMetadata.parse(read.metadata)).toEqual(read.metadata)
  })
})
