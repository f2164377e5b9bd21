/**
 * Every caller finds a keyed event at any revision, also if another process wrote it. While an event is in memory, it is not
 * read again.
 */
import { beforeEach, describe, expect, test } from 'vitest'
import { type EventLog, type NewEvent, Unavailable } from '../../src/event-log/port.ts'
import { uuidV5 } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { createKeyedEvents, keyedEventsLimits } from '../../src/ledger/write/keyed-events.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const stream = ledgerStream(org)

let log: MemoryEventLog
let writer: EventLog
let eventsRead: number
/** An event log that counts the events it returns. */
let counted: EventLog

beforeEach(() => {
  log = createMemoryEventLog()
  writer = log.client('writer')
  eventsRead = 0
  const reader = log.client('reader')
  counted = {
    ...reader,
    read: async (name, options) => {
      const page = await reader.read(name, options)
      eventsRead += page.length
      return page
    },
  }
})

const idOf = (name: string): string => uuidV5(name)
const event = (name: string, type: string, data: object): NewEvent => ({
  id: idOf(name),
  type,
  data: JSON.stringify(data),
  metadata: '{}',
})
const keyed = (name: string): NewEvent => event(name, 'KeyUsed', { facts: {}, idempotent: true })
const plain = (name: string): NewEvent => event(name, 'KeyUsed', { facts: {} })

const endOf = (name = stream): number => log.eventsOf(name).length - 1
const append = async (events: readonly NewEvent[], through = writer, to = stream): Promise<void> => {
  const end = endOf(to)
  await through.append(to, end === -1 ? 'none' : end, events)
}
const many = (count: number, name: string): NewEvent[] =>
  Array.from({ length: count }, (_, n) => plain(`${name}-${n}`))

/** Writes 5,000 events without keys, and three with a key: at the beginning, in the middle and at the end. */
const fill = async (): Promise<void> => {
  await append([keyed('a')])
  for (let n = 0; n < 5; n++) {
    await append(many(500, `x${n}`))
    if (n === 2) await append([keyed('b')])
    await append(many(500, `y${n}`))
  }
  await append([keyed('c')])
}
const names = ['a', 'b', 'c', 'x0-1', 'nowhere'].map(idOf)

test('each keyed event after the end of the projection is found at its place, and nothing more', async () => {
  await fill()
  const { places, upTo } = await createKeyedEvents(counted).find(org, names, -1)
  expect(Object.fromEntries(places)).toEqual({ [idOf('a')]: 0, [idOf('b')]: 2_501, [idOf('c')]: 5_002 })
  expect(upTo).toBe(5_002)
  // Events that the projection contains are not searched for in the log.
  const behind = await createKeyedEvents(counted).find(org, names, 3_001)
  expect([...behind.places.keys()]).toEqual([idOf('c')])
})

test('a ledger that does not exist has no keyed events', async () => {
  expect(await createKeyedEvents(counted).find(org, names, -1)).toEqual({ places: new Map(), upTo: -1 })
})

describe('no event is read twice', () => {
  test('for a hundred concurrent callers, and a hundred after them', async () => {
    await fill()
    const events = createKeyedEvents(counted)
    const ask = () => events.find(org, names, -1)
    for (let round = 0; round < 2; round++) {
      const answers = await Promise.all(Array.from({ length: 100 }, ask))
      for (const { places } of answers) expect(places.size).toBe(3)
    }
    expect(eventsRead).toBeLessThan(5_003 + 10)
  })

  test('if a ledger has read or appended it', async () => {
    await fill()
    const events = createKeyedEvents(counted)
    for (let from = 1_000; from <= 5_002; from += 1_000)
      await events.eventLog.read(stream, { from, max: 1_000 })
    await append([keyed('d')], events.eventLog)
    eventsRead = 0
    const { places, upTo } = await events.find(org, [...names, idOf('d')], 999)
    expect(places.get(idOf('d'))).toBe(5_003)
    expect({ size: places.size, upTo }).toEqual({ size: 3, upTo: 5_003 })
    expect(eventsRead).toBeLessThan(5)
  })

  test('if the projection is behind the account', async () => {
    await fill()
    const events = createKeyedEvents(counted)
    await events.eventLog.read(stream, { from: 4_500, max: 1_000 })
    for (let n = 0; n < 3; n++) expect((await events.find(org, names, 10)).places.size).toBe(2)
    expect(eventsRead).toBeLessThan(5_003)
  })
})

describe('events that are still found', () => {
  test('appended by another process since the last read', async () => {
    await fill()
    const events = createKeyedEvents(counted)
    await events.find(org, names, -1)
    await append([keyed('elsewhere')])
    expect((await events.find(org, [idOf('elsewhere')], -1)).places.size).toBe(1)
  })

  test('appended while an earlier read was running', async () => {
    await fill()
    let asked: Promise<unknown> | undefined
    const events = createKeyedEvents({
      ...counted,
      read: async (name, options) => {
        const page = await counted.read(name, options)
        // The page has been read, so events appended now are not on it.
        if (page.length < 1_000 && asked === undefined) {
          await append([keyed('late')])
          asked = events.find(org, [idOf('late')], -1)
        }
        return page
      },
    })
    await events.find(org, names, -1)
    expect(await asked).toMatchObject({ places: new Map([[idOf('late'), 5_003]]) })
  })

  test('removed from memory to make room, in this ledger and in others', async () => {
    const events = createKeyedEvents(counted, {
      ...keyedEventsLimits,
      placesMax: 2,
      ledgersMax: 2,
      pageMax: 10,
    })
    await fill()
    for (let n = 0; n < 3; n++) {
      expect((await events.find(org, names, -1)).places.size).toBe(3)
      for (const letter of ['A', 'B', 'C']) {
        const other = `org_01K9ZZZZZZZZZZZZZZZZZZZZZ${letter}`
        if (n === 0) await append([keyed(letter)], writer, ledgerStream(other))
        expect((await events.find(other, [idOf(letter)], -1)).places.size).toBe(1)
      }
    }
  })

  test('searched for again after a failed read', async () => {
    await fill()
    let away = true
    const events = createKeyedEvents({
      ...counted,
      read: (name, options) => (away ? Promise.reject(new Unavailable('away')) : counted.read(name, options)),
    })
    await expect(
      Promise.all([events.find(org, names, -1), events.find(org, names, -1)]),
    ).rejects.toBeInstanceOf(Unavailable)
    away = false
    expect((await events.find(org, names, -1)).places.size).toBe(3)
  })
})

test('a projection or a memory that is ahead of the log causes an error, and nothing is found', async () => {
  await fill()
  const events = createKeyedEvents(counted)
  await expect(events.find(org, names, 6_000)).rejects.toBeInstanceOf(Unavailable)
  const restored = createMemoryEventLog()
  let now = counted
  const remembering = createKeyedEvents({ ...counted, read: (...asked) => now.read(...asked) })
  await remembering.find(org, names, -1)
  now = restored.client('restored')
  await now.append(stream, 'none', [keyed('a')])
  await expect(remembering.find(org, names, -1)).rejects.toBeInstanceOf(Unavailable)
})

test('any order of appending, reading, searching and forgetting finds exactly the existing events', async () => {
  for (let seed = 1; seed <= 8; seed++) {
    const random = seededRandom(seed)
    log = createMemoryEventLog()
    const waiting = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, random.integer(2)))
    const client = log.client('one', { onRead: async () => void (await waiting()) })
    const events = createKeyedEvents(client, { pageMax: 7, placesMax: 60, ledgersMax: 2, pruneAt: 5 })
    const ids: string[] = []
    let projected = -1
    const asks: Promise<void>[] = []
    const elsewhere = log.client('another')
    for (let step = 0; step < 150; step++) {
      const draw = random.next()
      if (draw < 0.4) {
        const name = `${seed}-${step}`
        ids.push(idOf(name))
        const more = random.next() < 0.5 ? [keyed(name)] : [keyed(name), plain(`${name}-p`)]
        await append(more, random.next() < 0.5 ? elsewhere : events.eventLog)
      } else if (draw < 0.5) {
        const from = random.integer(endOf() + 2)
        await events.eventLog.read(stream, { from, max: 1 + random.integer(30) }).catch(() => undefined)
      } else if (draw < 0.6) projected = Math.max(projected, random.integer(endOf() + 2) - 1)
      else {
        const after = Math.max(-1, projected - random.integer(3))
        const sure = endOf()
        asks.push(
          events.find(org, ids, after).then(({ places, upTo }) => {
            expect(upTo).toBeGreaterThanOrEqual(sure)
            for (const { id, revision } of log.eventsOf(stream))
              if (ids.includes(id) && revision > after && revision <= upTo)
                expect(places.get(id), `seed ${seed}, revision ${revision}`).toBe(revision)
          }),
        )
        if (random.next() < 0.5) await asks.at(-1)
      }
    }
    await Promise.all(asks)
  }
})
