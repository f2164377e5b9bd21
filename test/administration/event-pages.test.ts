/** Pages of the event log in EventStoreDB, whose positions have gaps and which also contains events of other applications. */
import { afterAll, describe, expect, test } from 'vitest'
import { eventPage, newestEvents, streamPage } from '../../src/administration/event-log/event-pages.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { logger } from '../support/logger.ts'

const stream = 'ledger-org_a'

const double = await startEventStoreDouble({ writeTimeoutMs: 300 })
const open = (prefix: string): EventLog => openEventStoreDb({ url: double.url, prefix, logger })
const [eventLog, theirs] = [open('mine-'), open('theirs-')]
for (let n = 0; n < 120; n++) {
  await theirs.append(`order-${n}`, 'none', [
    { id: uuidV5(`theirs ${n}`), type: 'OrderPlaced', data: '{}', metadata: '{}' },
  ])
  await appendNext(eventLog, stream, [
    encodeEvent(
      { type: 'BalanceThresholdSet', data: { amount: String(n) } },
      { id: uuidV5(`mine ${n}`), actor: 'cli', effectiveAt: new Date(n).toISOString() },
    ),
  ])
}
afterAll(async () => {
  await eventLog.close()
  await theirs.close()
  await double.close()
})

describe('in EventStoreDB', () => {
  test('the newest events are shown in pages, without those of other logs on the server', async () => {
    const seen: number[] = []
    for (let before: bigint | null = null; ; ) {
      const page = await newestEvents(eventLog, { before, type: null, max: 50 })
      expect(page.events.length).toBeLessThanOrEqual(50)
      expect(page.events.every((event) => event.stream === stream)).toBe(true)
      seen.push(...page.events.map(({ revision }) => revision))
      if (page.next === null) break
      before = page.next
    }
    expect(seen).toEqual(Array.from({ length: 120 }, (_, i) => 119 - i))
    expect(await newestEvents(eventLog, { before: null, type: 'CreditGranted', max: 50 })).toMatchObject({
      events: [],
      next: null,
    })
    // The log has no event at that position, so the page before it is empty.
    expect(await newestEvents(eventLog, { before: 3n, type: null, max: 50 })).toMatchObject({
      events: [],
      next: null,
    })
  })

  test('a stream is shown in pages with its chain, and an event with its neighbours', async () => {
    const first = await streamPage(eventLog, { stream, before: null, type: null, max: 50 })
    expect(first?.events.map(({ event }) => event.revision)).toEqual(
      Array.from({ length: 50 }, (_, i) => 119 - i),
    )
    expect(first?.links.every(({ state }) => state === 'holds')).toBe(true)
    const second = await streamPage(eventLog, { stream, before: first?.next ?? 0, type: null, max: 50 })
    expect(second?.events[0]?.event.revision).toBe(69)
    expect(
      await streamPage(eventLog, { stream: 'ledger-none', before: null, type: null, max: 50 }),
    ).toBeNull()
    expect(await streamPage(eventLog, { stream, before: 0, type: null, max: 50 })).toMatchObject({
      events: [],
      next: null,
    })
    expect(await eventPage(eventLog, { stream, revision: 7 })).toMatchObject({
      event: { revision: 7 },
      link: { state: 'holds' },
      preceding: { revision: 6 },
      following: { event: { revision: 8 }, link: { state: 'holds' } },
    })
    expect(await eventPage(eventLog, { stream, revision: 120 })).toBeNull()
  })

  test('an event changed on the server breaks its chain there, and only there', async () => {
    double.alter(`mine-${stream}`, 40, 'data', (text) => text.replace('40', '41'))
    const page = await streamPage(eventLog, { stream, before: 70, type: null, max: 50 })
    expect(page?.links.filter(({ state }) => state !== 'holds')).toMatchObject([
      { revision: 40, state: 'broken' },
    ])
    // The next page checks this event, because its first event continues from this event's digest.
    expect(await eventPage(eventLog, { stream, revision: 41 })).toMatchObject({ link: { state: 'holds' } })
  })
})
