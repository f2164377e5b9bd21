/** The sources with which verification compares a ledger, and the faults that count as known. */
import { beforeEach, describe, expect, test } from 'vitest'
import { chain } from '../../src/event-log/hash-chain.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const stream = ledgerStream(org)
const at = '2026-03-01T12:00:00.000Z'

let log: MemoryEventLog
let digests: string[]

const grant = (amount: string, grant_id: string): LedgerEvent => ({
  type: 'CreditGranted',
  data: {
    grant_id,
    amount,
    priority: 1,
    expires_at: null,
    reason: 'test',
    overdraft_repaid: '0',
    reference: null,
  },
})

beforeEach(async () => {
  log = createMemoryEventLog()
  digests = []
  const events: LedgerEvent[] = [
    { type: 'OrganizationRegistered', data: { organization_id: org, name: 'Example', overdraft_limit: '0' } },
    ...['a', 'b', 'c', 'd'].map((key) => grant('5', eventIdOf(org, key, 0))),
  ]
  let previous = ''
  const chained = events.map((event, revision) => {
    const one = chain(
      encodeEvent(event, { id: eventIdOf(org, `e${revision}`, 0), actor: 'system', effectiveAt: at }),
      { stream, revision, previous },
      at,
    )
    previous = one.digest
    digests.push(one.digest)
    return one.event
  })
  await log.client('writer').append(stream, 'none', chained)
})

/** A log with some events changed or without its last events, which still reports the original last revision. */
const reading = (change: (events: readonly RecordedEvent[]) => readonly RecordedEvent[]) => {
  const events = change(log.eventsOf(stream))
  return {
    ...log.client('auditor'),
    read: async (_: string, { from = 0, max }: Parameters<EventLog['read']>[1]) =>
      events.slice(from, from + max),
  }
}

const everything = (events: readonly RecordedEvent[]) => events
const changed = (at: number, text: (data: string) => string) => (events: readonly RecordedEvent[]) =>
  events.map((event, i) => (i === at ? { ...event, data: text(event.data) } : event))

describe('other records of a ledger', () => {
  test('agree: there is no fault', async () => {
    const witnesses = [
      { name: 'its row', revision: 3, digest: digests[3] ?? '' },
      { name: 'its statement', revision: 2 },
    ]
    expect(await verifyLedger(reading(everything), org, { witnesses })).toMatchObject({
      fault: null,
      events: 5,
    })
  })

  test("the engine's own record: a truncated end breaks no chain, but is found", async () => {
    const { fault } = await verifyLedger(
      reading((events) => events.slice(0, 3)),
      org,
    )
    expect(fault).toMatchObject({
      revision: 3,
      event_id: null,
      digest: digests[2],
      fault: expect.stringContaining('the event log itself has revision 4: its end is missing'),
    })
  })

  test('a read model, if the engine was truncated too', async () => {
    const cut = {
      ...reading((events) => events.slice(0, 3)),
      lastRevision: async () => 2,
    }
    expect((await verifyLedger(cut, org)).fault).toBeNull()
    const witnesses = [{ name: 'its statement', revision: 4 }]
    expect((await verifyLedger(cut, org, { witnesses })).fault).toMatchObject({
      revision: 3,
      fault: expect.stringContaining('its statement has revision 4'),
    })
  })

  test('a read model with a different event at the same revision', async () => {
    const witnesses = [{ name: 'its row', revision: 2, digest: 'x'.repeat(43) }]
    expect((await verifyLedger(reading(everything), org, { witnesses })).fault).toMatchObject({
      revision: 2,
      fault: 'its row has a different event at this revision',
    })
  })

  test('a ledger that has been deleted', async () => {
    const gone = { ...reading(() => []), lastRevision: async () => null }
    const witnesses = [{ name: 'its row', revision: 4 }]
    expect((await verifyLedger(gone, org, { witnesses })).fault).toMatchObject({
      revision: 0,
      fault: expect.stringContaining('there are no events'),
    })
  })
})

describe('a fault that an operator acknowledged', () => {
  const cheaper = changed(2, (data) => data.replace('"amount":"5"', '"amount":"4"'))

  test('is known, and the events after it are checked', async () => {
    const { fault } = await verifyLedger(reading(cheaper), org)
    if (fault === null) throw new Error('the change was missed')
    const acknowledged = (revision: number, digest: string): boolean =>
      revision === fault.revision && digest === fault.digest
    expect(await verifyLedger(reading(cheaper), org, { acknowledged })).toMatchObject({
      events: 5,
      fault: null,
      known: [fault],
    })
    const twice = (events: readonly RecordedEvent[]) =>
      changed(4, (data) => data.replace('"amount":"5"', '"amount":"6"'))(cheaper(events))
    expect(await verifyLedger(reading(twice), org, { acknowledged })).toMatchObject({
      fault: { revision: 4 },
      known: [fault],
    })
  })

  test('becomes a new fault if its bytes change', async () => {
    const { fault } = await verifyLedger(reading(cheaper), org)
    const cheapest = changed(2, (data) => data.replace('"amount":"5"', '"amount":"3"'))
    const acknowledged = (revision: number, digest: string): boolean =>
      revision === fault?.revision && digest === fault.digest
    expect(await verifyLedger(reading(cheapest), org, { acknowledged })).toMatchObject({
      fault: { revision: 2 },
      known: [],
    })
  })
})

describe('a lot that was written off', () => {
  const lot = eventIdOf(org, 'expiring', 0)
  const expiresAt = '2026-03-02T00:00:00.000Z'

  const faultWhere = async ({ effectiveAt, recordedAt }: { effectiveAt: string; recordedAt: string }) => {
    const opened = grant('5', lot)
    if (opened.type === 'CreditGranted') opened.data.expires_at = expiresAt
    const writtenOff: LedgerEvent = { type: 'CreditExpired', data: { grant_id: lot, amount: '5' } }
    let previous = digests[4] ?? ''
    const chained = [
      { event: opened, effectiveAt: at, recordedAt: at },
      { event: writtenOff, effectiveAt, recordedAt },
    ].map((one, i) => {
      const own = { id: eventIdOf(org, `expiry${i}`, 0), actor: 'system', effectiveAt: one.effectiveAt }
      const { digest, event } = chain(
        encodeEvent(one.event, own),
        { stream, revision: 5 + i, previous },
        one.recordedAt,
      )
      previous = digest
      return event
    })
    await log.client('writer').append(stream, 4, chained)
    return (await verifyLedger(log.client('auditor'), org)).fault
  }

  test('after its expiry, when the recording clock had reached it, is correct', async () => {
    expect(await faultWhere({ effectiveAt: expiresAt, recordedAt: expiresAt })).toBeNull()
  })

  test('before it expired is a fault', async () => {
    const effectiveAt = '2026-03-01T23:59:59.999Z'
    expect(await faultWhere({ effectiveAt, recordedAt: '2026-03-03T00:00:00.000Z' })).toMatchObject({
      revision: 6,
      type: 'CreditExpired',
      fault: `writes off lot ${lot} as of ${effectiveAt}, before it expired`,
    })
  })

  test('with a recording time before its expiry is a fault', async () => {
    const recordedAt = '2026-03-01T23:59:59.999Z'
    expect(await faultWhere({ effectiveAt: expiresAt, recordedAt })).toMatchObject({
      revision: 6,
      type: 'CreditExpired',
      fault: `writes off lot ${lot} as of ${expiresAt}, but was recorded before that, at ${recordedAt}`,
    })
  })
})
