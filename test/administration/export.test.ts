/** Exporting a range of a ledger, with the event log's exact texts. */
import { describe, expect, test } from 'vitest'
import { eventJson, eventLine } from '../../src/administration/event-log/event-json.ts'
import { exportLedger, type LedgerRange } from '../../src/administration/ledgers/ledgers.ts'
import type { RecordedEvent } from '../../src/event-log/port.ts'
import { encodeEvent } from '../../src/event-log/stored-event.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'

const eventLog = createMemoryEventLog({ now: () => 1_700_000_000_123 }).client('one')
const events = Array.from({ length: 10 }, (_, n) =>
  encodeEvent(
    { type: 'CreditExpired', data: { grant_id: `00000000-0000-0000-0000-00000000000${n}`, amount: '1' } },
    {
      id: `00000000-0000-0000-0000-00000000000${n}`,
      actor: 'a "quoted" {actor},"effective_at":"1999-01-01T00:00:00.000Z"',
      effectiveAt: `2026-01-0${(n % 9) + 1}T00:00:00.000Z`,
    },
  ),
)
await eventLog.append(`ledger-${org}`, 'none', events)

const revisions = async (range: LedgerRange): Promise<number[]> => {
  const found: number[] = []
  for await (const page of exportLedger({ eventLog }, { organizationId: org, range }))
    found.push(...page.map(({ revision }) => revision))
  return found
}

describe('a range', () => {
  test('by revision includes both ends', async () => {
    expect(await revisions({ by: 'revision', from: 3, to: 5 })).toEqual([3, 4, 5])
    expect(await revisions({ by: 'revision', from: 8, to: null })).toEqual([8, 9])
    expect(await revisions({ by: 'revision', from: 12, to: 15 })).toEqual([])
  })

  test('by time contains events effective from its start and before its end, no matter when they were recorded', async () => {
    const at = (day: number) => `2026-01-0${day}T00:00:00.000Z`
    expect(await revisions({ by: 'time', from: at(2), until: at(4) })).toEqual([1, 2])
    expect(await revisions({ by: 'time', from: null, until: at(2) })).toEqual([0, 9])
    expect(await revisions({ by: 'time', from: at(9), until: null })).toEqual([8])
  })

  test('of an unknown ledger is refused', async () => {
    const missing = Array.fromAsync(
      exportLedger(
        { eventLog },
        { organizationId: 'org_none', range: { by: 'revision', from: 0, to: null } },
      ),
    )
    await expect(missing).rejects.toThrow('there is no ledger of org_none')
  })
})

describe('a line', () => {
  const lineOf = async (change: Partial<RecordedEvent>): Promise<{ line: string; event: RecordedEvent }> => {
    const [event] = await eventLog.read(`ledger-${org}`, { from: 4, max: 1 })
    if (event === undefined) throw new Error('the event is missing')
    const changed = { ...event, ...change }
    return { line: eventLine(changed), event: changed }
  }

  test('contains the event in its original text', async () => {
    const { line, event } = await lineOf({ data: '{"b":1, "a":"é\\n"}' })
    expect(JSON.parse(line)).toEqual(eventJson(event))
    expect(line).toContain('"data":{"b":1, "a":"é\\n"}}')
  })

  test('is one line of JSON, for any content in the log', async () => {
    const { line, event } = await lineOf({ data: '{"a":\n1}' })
    expect(line).not.toContain('\n')
    expect(JSON.parse(line)).toEqual(eventJson(event))
    expect(JSON.parse((await lineOf({ data: 'nothing' })).line).data).toBe('nothing')
  })
})
