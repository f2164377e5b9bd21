/** A process's keys in memory are read from the event log at their first use, updated by the subscription, and never guessed. */
import fc from 'fast-check'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type EventLog, type NewEvent, Unavailable } from '../../src/event-log/port.ts'
import { encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import { keyStream } from '../../src/events/streams.ts'
import { type FoundKey, type OpenKeyDirectory, openKeyDirectory } from '../../src/guard/key-directory.ts'
import type { KeyEvent } from '../../src/keys/key-state.ts'
import { randomCases } from '../support/exhaustive.ts'
import { until } from '../support/house.ts'
import { type ClientFaults, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const keyId = 'Hq3Zk9Lw2Xc7Vb1N'
const stream = keyStream(keyId)
const at = '2026-03-01T00:00:00.000Z'
const limits = { requests_per_minute: 60, requests_per_day: 1_000, email_validations_per_second: 10 }
const issued = (id = keyId): KeyEvent => ({
  type: 'ApiKeyIssued',
  data: {
    key_id: id,
    organization_id: 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
    organization_name: 'Acme',
    name: 'production',
    secret_hmac: 'A'.repeat(43),
    last4: 'wxyz',
    permissions: [],
    limits,
    allowed_cidrs: [],
    expires_at: null,
  },
})
const revoked: KeyEvent = { type: 'ApiKeyRevoked', data: { key_id: keyId, reason: 'leaked' } }

let log: MemoryEventLog
let writer: EventLog
let opened: { directory: OpenKeyDirectory; client: EventLog }[]
let fatal: unknown[]
beforeEach(() => {
  log = createMemoryEventLog()
  writer = log.client('writer')
  opened = []
  fatal = []
})
afterEach(async () => {
  for (const { directory, client } of opened) {
    await directory.stop()
    await client.close()
  }
})

const append = async (...events: (KeyEvent | { type: string; data: object })[]): Promise<void> => {
  for (const event of events) {
    const revision = log.eventsOf(stream).length
    const id = uuidV5(`${stream} ${revision}`)
    const encoded =
      event.type === 'ApiKeyPutToSleep'
        ? {
            id,
            type: event.type,
            data: '{}',
            metadata: JSON.stringify({ schema_version: 1, effective_at: at }),
          }
        : encodeEvent(event as KeyEvent, { id, actor: 'cli', effectiveAt: at })
    await writer.append(stream, revision === 0 ? 'none' : revision - 1, [encoded])
  }
}
const unknownEvent = { type: 'ApiKeyPutToSleep', data: {} }

const logger = pino({
  level: 'fatal',
  hooks: { logMethod: (args) => void fatal.push(args[0]) },
})

const openOn = async (client: EventLog, listed: readonly string[] = []): Promise<OpenKeyDirectory> => {
  const directory = await openKeyDirectory({ eventLog: client, listed, logger })
  opened.push({ directory, client })
  await directory.caughtUp
  return directory
}
const open = (faults: ClientFaults = {}, listed?: readonly string[]): Promise<OpenKeyDirectory> =>
  openOn(log.client(`process ${opened.length}`, faults), listed)
const ended = (found: FoundKey): boolean =>
  found === undefined || found === 'in_doubt' || found.endsAtMs <= Date.now()

describe('a key', () => {
  test('is read at its first use, and then known without a request', async () => {
    await append(issued())
    let reads = 0
    const directory = await open({ onRead: () => void reads++ })
    expect(reads).toBe(0)
    const [first, second] = await Promise.all([directory.get(keyId), directory.get(keyId)])
    expect(first).toMatchObject({ keyId, endsAtMs: Number.POSITIVE_INFINITY })
    expect(second).toBe(first)
    expect(directory.get(keyId)).toBe(first)
    expect(reads).toBe(1)
  })

  test('that is revoked is refused when the event arrives, and by a process that starts then', async () => {
    await append(issued())
    const directory = await open()
    expect(ended(await directory.get(keyId))).toBe(false)
    await append(revoked)
    await until('the event was applied', async () => ended(await directory.get(keyId)))
    expect(ended(await (await open()).get(keyId))).toBe(true)
  })

  test('that is revoked while it is read is refused, however long the read takes', async () => {
    await append(issued())
    const read = Promise.withResolvers<void>()
    const applied = Promise.withResolvers<void>()
    const client = log.client('slow')
    // The log's answer was read before the revocation but arrives after it.
    const directory = await openOn({
      ...client,
      subscribe: async function* (options) {
        for await (const item of client.subscribe(options)) {
          yield item
          // The directory asks for the next item when it has applied this one.
          if (item.kind === 'events' && item.events.some(({ type }) => type === 'ApiKeyRevoked'))
            applied.resolve()
        }
      },
      read: async (...args) => {
        const page = await client.read(...args)
        await read.promise
        return page
      },
    })
    const found = directory.get(keyId)
    await append(revoked)
    await applied.promise
    read.resolve()
    expect(ended(await found)).toBe(true)
    expect(ended(await directory.get(keyId))).toBe(true)
  })

  test('that does not exist is looked up once; when it is issued, it is known', async () => {
    let reads = 0
    const directory = await open({ onRead: () => void reads++ })
    expect(await directory.get(keyId)).toBeUndefined()
    expect(directory.get(keyId)).toBeUndefined()
    expect(reads).toBe(1)
    await append(issued())
    await until('the event was applied', async () => (await directory.get(keyId)) !== undefined)
  })

  test('is unknown while the log is unavailable, and known afterwards', async () => {
    await append(issued())
    let down = true
    const directory = await open({ onRead: () => (down ? 'unavailable' : undefined) })
    await expect(directory.get(keyId)).rejects.toThrow(Unavailable)
    down = false
    expect(await directory.get(keyId)).toMatchObject({ keyId })
  })

  test('is read from the log each time while the subscription is lost: a revocation is not missed', async () => {
    await append(issued())
    const client = log.client('torn')
    const lost = new AbortController()
    const directory = await openOn({
      ...client,
      subscribe: async function* (options) {
        lost.signal.throwIfAborted()
        yield { kind: 'caught-up', position: options.after }
        await new Promise((_, reject) =>
          lost.signal.addEventListener('abort', () => reject(new Error('the subscription is lost'))),
        )
      },
    })
    expect(ended(await directory.get(keyId))).toBe(false)
    await append(revoked)
    expect(ended(await directory.get(keyId))).toBe(false)
    lost.abort()
    await until('the loss is noticed', async () => directory.failure() !== null)
    expect(ended(await directory.get(keyId))).toBe(true)
  })
})

describe('invented keys', () => {
  const madeUp = (n: number): string => `made-up-${String(n).padStart(8, '0')}`

  test('cost a bounded number of reads; keys that the rows name, or that were issued since, are always read', async () => {
    await append(issued())
    let reads = 0
    const listed = await open({ onRead: () => void reads++ }, [keyId])
    for (let n = 0; n < 5_000; n++) await listed.get(madeUp(n))
    expect(reads).toBeGreaterThanOrEqual(500)
    expect(reads).toBeLessThan(1_500)
    expect(await listed.get(keyId)).toMatchObject({ keyId })
  })
})

describe('a stream with an event that cannot be read', () => {
  test('refuses its key and is logged, while other keys are answered; revoking the key resolves it', async () => {
    await append(issued(), unknownEvent)
    const directory = await open()
    expect(await directory.get(keyId)).toBe('in_doubt')
    expect(directory.doubtful()).toEqual([keyId])
    expect(directory.failure()).toBeNull()
    expect(fatal).toEqual([{ stream, revision: 1 }])
    await append(revoked)
    await until('the revocation was applied', async () => directory.doubtful().length === 0)
    expect(ended(await directory.get(keyId))).toBe(true)
  })

  test('is noticed when it arrives, before the key is used', async () => {
    await append(issued())
    const directory = await open()
    await append(unknownEvent)
    await until('the event was applied', async () => directory.doubtful().length === 1)
    expect(directory.get(keyId)).toBe('in_doubt')
    expect(fatal).toContainEqual({ stream, revision: 1 })
  })

  test('is ignored if no key can have the id: other software writes to the same log', async () => {
    const directory = await open()
    await writer.append('key-value', 'none', [
      { id: uuidV5('foreign'), type: 'ValueStored', data: '{}', metadata: '{}' },
    ])
    await until('the event was applied', async () => fatal.length > 0)
    await directory.parked(['key-value'])
    expect(directory.failure()).toBeNull()
    expect(directory.doubtful()).toEqual([])
  })

  test('is noticed when the projector has parked it; a readable event that is parked keeps its key', async () => {
    await append(issued())
    const directory = await open()
    await directory.parked([stream, 'profile-x'])
    expect(directory.doubtful()).toEqual([keyId])
    expect(directory.get(keyId)).toMatchObject({ keyId })
    await directory.parked([])
    expect(directory.doubtful()).toEqual([])
    await append(revoked)
    await until('the revocation was applied', async () => ended(await directory.get(keyId)))
    await directory.parked([stream])
    expect(directory.doubtful()).toEqual([])
  })
})

describe('a process with more keys than fit into memory', () => {
  const others = ['Jq3Zk9Lw2Xc7Vb1N', 'Kq3Zk9Lw2Xc7Vb1N'] as const

  /** Opens a directory that keeps one key in memory. `displace` uses other keys, so that the memory contains no other key. */
  const openSmall = async () => {
    for (const id of others)
      await writer.append(keyStream(id), 'none', [
        encodeEvent(issued(id), { id: uuidV5(`${keyStream(id)} 0`), actor: 'cli', effectiveAt: at }),
      ])
    let reads = 0
    const client = log.client('small', { onRead: () => void reads++ })
    const directory = await openKeyDirectory({ eventLog: client, listed: [], logger, max: 1 })
    opened.push({ directory, client })
    await directory.caughtUp
    const displace = async (): Promise<void> => {
      for (const id of others) await directory.get(id)
    }
    return { directory, displace, reads: () => reads }
  }

  test('reads a displaced key again at its next use, with a revocation that arrived in between', async () => {
    await append(issued())
    const { directory, displace, reads } = await openSmall()
    expect(ended(await directory.get(keyId))).toBe(false)
    await displace()
    const before = reads()
    expect(ended(await directory.get(keyId))).toBe(false)
    expect(reads()).toBe(before + 1)
    await displace()
    await append(revoked)
    expect(ended(await directory.get(keyId))).toBe(true)
  })

  test('does not doubt a displaced key with a parked event that was revoked', async () => {
    await append(issued(), revoked)
    const { directory, displace } = await openSmall()
    await directory.parked([stream])
    await displace()
    expect(directory.doubtful()).toEqual([])
  })

  test('notices that a displaced key with an unreadable event is revoked', async () => {
    await append(issued(), unknownEvent)
    const { directory, displace } = await openSmall()
    expect(await directory.get(keyId)).toBe('in_doubt')
    await displace()
    expect(directory.doubtful()).toEqual([keyId])
    await append(revoked)
    await until('the revocation was applied', async () => directory.doubtful().length === 0)
  })
})

describe('any events in the stream of a key', () => {
  type Written = Pick<NewEvent, 'type' | 'data' | 'metadata'>
  const envelope = (version = 1, effectiveAt = at): string =>
    JSON.stringify({ schema_version: version, actor: 'cli', effective_at: effectiveAt })
  const written = (type: string, data: object, metadata = envelope()): Written => ({
    type,
    data: JSON.stringify(data),
    metadata,
  })
  const revokedFor = (reason: unknown, metadata?: string): Written =>
    written('ApiKeyRevoked', { key_id: keyId, reason }, metadata)
  const revokedAs = (data: string): Written => ({ ...revokedFor('leaked'), data })
  const rotated = (grace_until: string, metadata?: string): Written =>
    written('ApiKeyRotated', { key_id: keyId, successor_id: 'A0b1C2d3E4f5G6h7', grace_until }, metadata)

  /** With an event of the second group, the key is refused. */
  const happenings: Readonly<Record<'open' | 'refused', Readonly<Record<string, Written>>>> = {
    open: {
      'rotated, in grace': rotated('2999-03-01T00:00:00.000Z'),
      'issued again': written('ApiKeyIssued', issued().data),
      'issued again with U+0000': written('ApiKeyIssued', { ...issued().data, name: 'again\0' }),
      'limits changed': written('ApiKeyLimitsChanged', { key_id: keyId, limits }),
    },
    refused: {
      revoked: revokedFor('leaked'),
      'revoked, reason with U+0000': revokedFor('leaked\0'),
      'revoked, reason with half a character': revokedAs(`{"key_id":"${keyId}","reason":"\\ud800"}`),
      'revoked, reason too long': revokedFor('x'.repeat(5_000)),
      'revoked, without a reason': revokedFor(undefined),
      'revoked by an unknown later version': revokedFor('leaked', envelope(99)),
      'revoked, broken off': revokedAs('{"key_id":"'),
      'revoked, in the name of another key': revokedAs('{"key_id":"0000000000000000","reason":"leaked"}'),
      'revoked at an invalid time': revokedFor('leaked', envelope(1, '2026-99-99T00:00:00.000Z')),
      'revoked in the future': revokedFor('leaked', envelope(1, '2999-01-01T00:00:00.000Z')),
      'rotated, grace over': rotated(at),
      'rotated without grace, in the future': rotated(
        '2999-01-01T00:00:00.000Z',
        envelope(1, '2999-01-01T00:00:00.000Z'),
      ),
      'an event of tomorrow': written('ApiKeyPutToSleep', {}),
      'an event of another family': written('PixelBlocked', {}),
    },
  }
  const all = { ...happenings.open, ...happenings.refused }

  /** One process follows the log and has used the key before; the other starts later and reads the whole stream. */
  const expectSame = async (happened: readonly string[]): Promise<void> => {
    log = createMemoryEventLog()
    writer = log.client('writer')
    await append(issued())
    const running = await open()
    expect(ended(await running.get(keyId))).toBe(false)
    for (const [n, name] of happened.entries())
      await writer.append(stream, n, [{ ...(all[name] ?? expect.unreachable()), id: uuidV5(`${name} ${n}`) }])
    const refused = happened.some((name) => name in happenings.refused)
    const starting = await open()
    expect({ happened, refused: ended(await starting.get(keyId)) }).toEqual({ happened, refused })
    await until(
      `the running process gives the same answer: ${happened}`,
      async () => ended(await running.get(keyId)) === refused,
    )
  }

  test.each(Object.keys(all))('%s: every process gives the same answer', (name) => expectSame([name]))

  test('several, in any order: every process refuses the key if one of them ends it or cannot be read', async () => {
    const names = fc.array(fc.constantFrom(...Object.keys(all)), { minLength: 2, maxLength: 4 })
    await fc.assert(fc.asyncProperty(names, expectSame), {
      seed: 1,
      numRuns: randomCases(50),
    })
  })
})
