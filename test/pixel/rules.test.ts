/** The rules in memory: when a change applies in each process, and what happens if the event log fails. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createPixelRules, type PixelRulesModel } from '../../src/capabilities/pixel/rules.ts'
import { placeOf, type RuleCommand } from '../../src/capabilities/pixel/rules-state.ts'
import { type EventLog, type NewEvent, Unavailable } from '../../src/event-log/port.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { pixelStream } from '../../src/events/streams.ts'
import {
  type AppendFault,
  type ClientFaults,
  createMemoryEventLog,
  type MemoryEventLog,
} from '../support/memory-event-log.ts'

const organizationId = 'org_00000000000000000000000001'
const stream = pixelStream(organizationId)
const atMs = Date.UTC(2026, 8, 14, 12)
const at = new Date(atMs).toISOString()

let eventLog: MemoryEventLog
let clients: EventLog[]
beforeEach(() => {
  eventLog = createMemoryEventLog()
  clients = []
})
afterEach(async () => {
  for (const client of clients) await client.close()
})

const openOn = (client: EventLog): PixelRulesModel => {
  clients.push(client)
  return createPixelRules(client, { unknownMs: 500, unavailableMs: 0, pauseMs: 5 })
}
const open = (faults: ClientFaults = {}): PixelRulesModel =>
  openOn(eventLog.client(`process ${clients.length}`, faults))

let requests = 0
const give = (rules: PixelRulesModel, command: RuleCommand, requestId = `request${++requests}`) =>
  rules.change(organizationId, command, { actor: 'key:abc', once: requestId, requestId, atMs })
const limitOf = (domain: string, number: number): RuleCommand => ({
  kind: 'limit',
  domain,
  period: 'day',
  number,
})
const block: RuleCommand = { kind: 'block', domain: 'example.com' }
const unblock: RuleCommand = { kind: 'unblock', domain: 'example.com' }

const recorded = () =>
  eventLog.eventsOf(stream).map((one) => {
    const { type, data } = decodeEvent(one)
    return { type, data }
  })
const blockedFact = { type: 'PixelBlocked', data: { organization_id: organizationId, domain: 'example.com' } }

const encoded = (event: DomainEvent, n: number): NewEvent =>
  encodeEvent(event, { id: eventIdOf(stream, `test ${n}`, 0), actor: 'cli', effectiveAt: at })
const setEvent = (n: number): DomainEvent => ({
  type: 'PixelLimitSet',
  data: { organization_id: organizationId, domain: `d${n}.example.com`, period: 'day', number: n + 1 },
})

describe('a change', () => {
  test('applies where it was made when it is answered, and is one event of the call', async () => {
    const rules = open()
    expect(await give(rules, block, '01J0')).toMatchObject({ changed: true, tooMany: false })
    const now = await rules.certain(organizationId)
    expect(now.rules.get(placeOf('example.com', null))).toMatchObject({ actor: 'key:abc', at })
    expect(recorded()).toEqual([blockedFact])
    const { recorded_at, digest, ...metadata } = eventLog.eventsOf(stream).map(decodeEvent)[0]?.metadata ?? {}
    expect([Date.parse(recorded_at ?? ''), digest?.length]).toEqual([expect.any(Number), 43])
    expect(metadata).toEqual({
      schema_version: 1,
      request_id: '01J0',
      actor: 'key:abc',
      effective_at: at,
    })
  })

  test('applies elsewhere from the next use on', async () => {
    const [here, there] = [open(), open()]
    expect((await there.certain(organizationId)).rules.size).toBe(0)
    await give(here, block)
    expect((await there.certain(organizationId)).rules.size).toBe(1)
    await give(there, unblock)
    expect((await here.certain(organizationId)).rules.size).toBe(0)
  })

  test('that changes nothing records nothing', async () => {
    const rules = open()
    await give(rules, block)
    await give(rules, limitOf('example.com', 5))
    expect(await give(rules, block)).toMatchObject({ changed: false, tooMany: false })
    expect(await give(rules, limitOf('example.com', 5))).toMatchObject({ changed: false })
    expect(await give(rules, { kind: 'unlimit', domain: 'example.com', period: 'month' })).toMatchObject({
      changed: false,
    })
    expect(recorded()).toHaveLength(2)
  })

  test('made simultaneously with many others, here and elsewhere, is made once each, and all processes agree', async () => {
    const processes = [open(), open(), open()]
    const domains = Array.from({ length: 60 }, (_, n) => `d${n}.example.com`)
    await Promise.all(
      domains.flatMap((domain, n) => {
        const rules = processes[n % 3]
        return rules === undefined
          ? []
          : [give(rules, limitOf(domain, n + 1)), give(rules, limitOf(domain, n + 1))]
      }),
    )
    expect(recorded()).toHaveLength(60)
    for (const rules of processes) {
      const { rules: found } = await rules.certain(organizationId)
      expect(found.size).toBe(60)
      for (const [n, domain] of domains.entries())
        expect(found.get(placeOf(domain, 'day'))).toMatchObject({ number: n + 1 })
    }
  })

  test('is refused for now if a hundred are waiting, and the hundred are made', async () => {
    const rules = open()
    const results = await Promise.allSettled(
      Array.from({ length: 150 }, (_, n) => give(rules, limitOf(`d${n}.example.com`, 1))),
    )
    const refused = results.filter((one) => one.status === 'rejected')
    expect(refused).toHaveLength(50)
    for (const { reason } of refused) expect(reason).toBeInstanceOf(Unavailable)
    expect(recorded()).toHaveLength(100)
  })
})

describe('a change whose append fails', () => {
  const failing = (...faults: (AppendFault | undefined)[]) => open({ onAppend: () => faults.shift() })

  test.each<[string, AppendFault[]]>([
    ['the reply was lost', ['lose-reply']],
    ['the request was lost', ['lose-request']],
    ['both were lost, one after the other', ['lose-request', 'lose-reply']],
    ['the append is still in progress', ['late']],
  ])('because %s is made once', async (_, faults) => {
    const rules = await failing(...faults)
    expect(await give(rules, block)).toMatchObject({ changed: true })
    while (eventLog.late.length > 0) eventLog.deliverLate()
    expect(recorded()).toEqual([blockedFact])
    expect((await rules.certain(organizationId)).rules.size).toBe(1)
    expect(await give(rules, unblock)).toMatchObject({ changed: true })
  })

  test('because the log never answers is unavailable, and is made once when sent again', async () => {
    let answers = false
    const rules = open({ onAppend: () => (answers ? undefined : 'lose-reply') })
    await expect(give(rules, block)).rejects.toThrow(Unavailable)
    answers = true
    expect(eventLog.attempts.length).toBeGreaterThan(2)
    expect(new Set(eventLog.attempts.map(({ events }) => events[0]?.id)).size).toBe(1)
    expect(await give(rules, block)).toMatchObject({ changed: false })
    expect(recorded()).toEqual([blockedFact])
  })

  test('because the log is unavailable is not made, and can be sent again', async () => {
    const rules = await failing('unavailable')
    await expect(give(rules, block)).rejects.toThrow(Unavailable)
    expect(recorded()).toEqual([])
    expect((await rules.certain(organizationId)).rules.size).toBe(0)
    expect(await give(rules, block)).toMatchObject({ changed: true })
  })

  test('against other writers that are always faster gives up after ten attempts', async () => {
    let n = 0
    const intruder = eventLog.client('intruder')
    const rules = open({
      onAppend: async ({ expected }) => {
        await intruder.append(stream, expected, [encoded(setEvent(n), n)])
        n++
        return undefined
      },
    })
    await expect(give(rules, block)).rejects.toThrow(Unavailable)
    expect(n).toBe(10)
    await intruder.close()
  })
})

describe('the rules of an organization', () => {
  const seed = async (count: number): Promise<void> => {
    const client = eventLog.client('seed')
    const from = eventLog.eventsOf(stream).length
    for (let n = from; n < from + count; n++)
      await client.append(stream, n === 0 ? 'none' : n - 1, [encoded(setEvent(n), n)])
    await client.close()
  }

  test('are read at their first use, however many events there are', async () => {
    await seed(2_500)
    const rules = open()
    expect(await rules.certain(organizationId)).toMatchObject({ revision: 2_499, rules: { size: 2_500 } })
  })

  test('are read once for simultaneous callers, and later only from the last event on', async () => {
    await seed(3)
    let reads = 0
    const rules = open({ onRead: () => void reads++ })
    await Promise.all(Array.from({ length: 50 }, () => rules.certain(organizationId)))
    expect(reads).toBe(1)
    await seed(1)
    expect(await rules.certain(organizationId)).toMatchObject({ revision: 3, rules: { size: 4 } })
    expect(reads).toBe(2)
  })

  test('contain every event recorded before a caller asked, even if a read is in progress', async () => {
    await seed(2)
    const released = Promise.withResolvers<void>()
    const client = eventLog.client('slow')
    let reads = 0
    const rules = openOn({
      ...client,
      read: async (...asked) => {
        const events = await client.read(...asked)
        if (reads++ === 0) await released.promise
        return events
      },
    })
    const first = rules.certain(organizationId)
    await vi.waitUntil(() => reads === 1)
    await seed(3)
    expect(await rules.certain(organizationId)).toMatchObject({ revision: 4, rules: { size: 5 } })
    released.resolve()
    await first
    expect(await rules.certain(organizationId)).toMatchObject({ revision: 4, rules: { size: 5 } })
  })

  test('that cannot be read are unavailable, and are read again for the next caller', async () => {
    await seed(1)
    let down = true
    const rules = open({ onRead: () => (down ? 'unavailable' : undefined) })
    await expect(rules.certain(organizationId)).rejects.toThrow(Unavailable)
    down = false
    expect(await rules.certain(organizationId)).toMatchObject({ rules: { size: 1 } })
  })

  test('are refused if an event cannot be read, because it may be a block; other organizations continue', async () => {
    const client = eventLog.client('newer')
    const early = open()
    await early.certain(organizationId)
    const unknown: NewEvent = { ...encoded(setEvent(1), 1), type: 'PixelPainted' }
    await client.append(stream, 'none', [encoded(setEvent(0), 0), unknown, encoded(setEvent(2), 2)])
    const late = open()
    for (const rules of [early, late]) {
      await expect(rules.certain(organizationId)).rejects.toThrow(/cannot be read at revision 1/)
      await expect(give(rules, block)).rejects.toThrow(Unavailable)
      expect(await rules.read(organizationId)).toMatchObject({ unreadableAt: 1 })
      expect(await rules.certain('org_00000000000000000000000002')).toMatchObject({ rules: { size: 0 } })
    }
    expect(eventLog.eventsOf(stream)).toHaveLength(3)
    await client.close()
  })

  test.each<[string, Partial<NewEvent>]>([
    [
      'in an unknown version',
      { metadata: '{"schema_version":99,"actor":"cli","effective_at":"2026-09-14T12:00:00.000Z"}' },
    ],
    ['that is not JSON', { data: '{"organization_id":' }],
    ['without its domain', { data: `{"organization_id":"${organizationId}"}` }],
    [
      'about another organization',
      { data: '{"organization_id":"org_00000000000000000000000009","domain":"example.com"}' },
    ],
    ['of an unrelated type', { type: 'ApiKeyRevoked' }],
  ])('are refused if a block cannot be read: one %s', async (_, spoilt) => {
    const client = eventLog.client('newer')
    const rules = open()
    await client.append(stream, 'none', [{ ...encoded(blockedFact as DomainEvent, 0), ...spoilt }])
    await expect(rules.certain(organizationId)).rejects.toThrow(Unavailable)
    await client.close()
  })
})
