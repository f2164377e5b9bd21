/** Streams other than ledgers are also chained, by the function that appends to them. */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { appendChained } from '../../src/event-log/append-chained.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { recompute } from '../../src/event-log/hash-chain.ts'
import { AppendConflict, EventsUnreadable, type NewEvent } from '../../src/event-log/port.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const stream = 'operator'
const event = (n: number): NewEvent => ({
  id: `00000000-0000-5000-8000-${String(n).padStart(12, '0')}`,
  type: 'RebuildRequested',
  data: `{"projections":["accounts"],"reason":"r${n}"}`,
  metadata: '{"schema_version":1,"actor":"cli","effective_at":"2026-03-01T12:00:00.000Z"}',
})
const recordedAts = (events: readonly NewEvent[]): string[] =>
  events.map(({ metadata }) => JSON.parse(metadata).recorded_at)

/** Recomputes the chain independently. Returns the revisions with a wrong digest. */
const broken = (events: readonly NewEvent[]): number[] => {
  let previous = ''
  return events.flatMap((one, revision) => {
    const { carried, computed } = recompute(one, { stream, revision, previous })
    previous = carried ?? computed
    return carried === computed ? [] : [revision]
  })
}

afterEach(() => vi.restoreAllMocks())

describe('an append', () => {
  test('continues from the digest of the previous event, with either function', async () => {
    const log = createMemoryEventLog().client('a')
    await appendChained(log, stream, 'none', [event(0), event(1)])
    await appendNext(log, stream, [event(2)])
    await appendChained(log, stream, 2, [event(3)])
    const all = await log.read(stream, { max: 10 })
    expect(all).toHaveLength(4)
    expect(broken(all)).toEqual([])
    expect(recordedAts(all).toSorted()).toEqual(recordedAts(all))
  })

  test('after an event without a digest continues as at the first event of a chain', async () => {
    const log = createMemoryEventLog().client('a')
    await log.append(stream, 'none', [event(0), event(1)])
    await appendNext(log, stream, [event(2)])
    const all = await log.read(stream, { max: 10 })
    expect(broken(all.slice(0, 2))).toEqual([0, 1])
    const previous = recompute(event(1), { stream, revision: 1, previous: '' }).computed
    const [last] = all.slice(2)
    if (last === undefined) throw new Error('not appended')
    const { carried, computed } = recompute(last, { stream, revision: 2, previous })
    expect(carried).toBe(computed)
  })

  test('is never recorded as earlier than the previous event, even if the clock was set back', async () => {
    const log = createMemoryEventLog().client('a')
    const later = '2999-01-01T00:00:00.000Z'
    await log.append(stream, 'none', [
      { ...event(0), metadata: event(0).metadata.replace('}', `,"recorded_at":"${later}"}`) },
    ])
    await appendNext(log, stream, [event(1)])
    expect(recordedAts(await log.read(stream, { max: 10 }))).toEqual([later, later])
  })

  test('that was already made changes nothing, even if its bytes would differ now', async () => {
    const log = createMemoryEventLog().client('a')
    await appendChained(log, stream, 'none', [event(0)])
    await appendNext(log, stream, [event(1)])
    const before = await log.read(stream, { max: 10 })
    expect(await appendChained(log, stream, 'none', [event(0)])).toEqual({ revision: 0, repeated: true })
    expect(await log.read(stream, { max: 10 })).toEqual(before)
  })

  test('to the end of a stream succeeds, however many others are made at the same time', async () => {
    const memory = createMemoryEventLog()
    const logs = [memory.client('a'), memory.client('b')]
    const many = Array.from({ length: 50 }, (_, n) => event(n))
    await Promise.all(
      logs.flatMap((log, i) => many.slice(25 * i, 25 * i + 25).map((one) => appendNext(log, stream, [one]))),
    )
    const all = await memory.client('c').read(stream, { max: 100 })
    expect(all.map(({ id }) => id).toSorted()).toEqual(many.map(({ id }) => id))
    expect(broken(all)).toEqual([])
  })

  test('to a stream that has lost its last event fails, and the error names the event', async () => {
    const log = createMemoryEventLog().client('a')
    await appendChained(log, stream, 'none', [event(0), event(1)])
    let appends = 0
    const append: typeof log.append = (...asked) => {
      appends++
      return log.append(...asked)
    }
    vi.spyOn(performance, 'now').mockImplementation(() => (appends < 2 ? 0 : 60_000))
    const shortened = { append, read: () => log.read(stream, { max: 1 }) }
    await expect(appendNext(shortened, stream, [event(2)])).rejects.toThrow(
      new EventsUnreadable({
        stream,
        firstRevision: 1,
        lastRevision: 1,
        why: 'it is missing from the event log; restore it from a backup',
      }),
    )
  })

  test('to the end of a stream waits its turn in a process, but not for an append without an answer', async () => {
    const log = createMemoryEventLog().client('a')
    let appends = 0
    const append: typeof log.append = (...asked) => {
      appends++
      return log.append(...asked)
    }
    const many = Array.from({ length: 30 }, (_, n) => appendNext({ ...log, append }, stream, [event(n)]))
    await Promise.all(many)
    expect(appends).toBe(30)
    const silent = appendNext({ ...log, append: () => new Promise(() => undefined) }, stream, [event(30)])
    const next = appendNext(log, stream, [event(31)])
    expect(await Promise.race([silent, next])).toMatchObject({ revision: 30 })
  })

  test('at a revision other than the last is a conflict', async () => {
    const log = createMemoryEventLog().client('a')
    await appendChained(log, stream, 'none', [event(0)])
    await expect(appendChained(log, stream, 'none', [event(1)])).rejects.toThrow(AppendConflict)
    await expect(appendChained(log, stream, 5, [event(1)])).rejects.toThrow(AppendConflict)
  })
})
