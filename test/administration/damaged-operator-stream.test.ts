/** An event of the operators' stream that cannot be opened hides neither earlier nor later acts. */
import { beforeEach, expect, test } from 'vitest'
import { createActs } from '../../src/administration/acts.ts'
import { acknowledgedFaults, acknowledgeFault } from '../../src/administration/ledgers/ledgers.ts'
import { lastReconciled, recordReconciled } from '../../src/administration/ledgers/reconciliations.ts'
import { recordOperation } from '../../src/administration/operator-events.ts'
import { type EventLog, EventsUnreadable, type RecordedEvent } from '../../src/event-log/port.ts'
import { operatorStream, reconciledStream } from '../../src/events/streams.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import type { Reconciled } from '../../src/ledger/check/reconcile.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const digest = 'A'.repeat(43)
const checkpoints = {
  sign: async () => ({ keyId: 'k'.repeat(22), value: 's'.repeat(86) }),
  isSigned: async () => true,
}

let log: EventLog
/** The event that cannot be opened, by its stream and revision. */
let damagedStream: string
let damaged: number

beforeEach(() => {
  const client = createMemoryEventLog().client('operator')
  damagedStream = operatorStream
  damaged = -1
  const check = (events: readonly RecordedEvent[]): void => {
    if (events.some(({ stream, revision }) => stream === damagedStream && revision === damaged))
      throw new EventsUnreadable({
        stream: damagedStream,
        firstRevision: damaged,
        lastRevision: damaged,
        why: 'damaged',
      })
  }
  log = {
    ...client,
    read: async (...asked) => {
      const events = await client.read(...asked)
      check(events)
      return events
    },
  }
})

const rebuildRequested = () =>
  recordOperation(
    log,
    { type: 'RebuildRequested', data: { projections: ['accounts'], reason: 'a test' } },
    { actor: 'cli' },
  )

const acknowledge = (revision: number) =>
  acknowledgeFault(
    { eventLog: log },
    {
      organizationId: org,
      revision,
      digest,
      reason: 'known',
      actor: 'cli',
    },
  )

test('acknowledged faults stay known', async () => {
  await acknowledge(1)
  await rebuildRequested()
  await acknowledge(2)
  damaged = 1
  const known = await acknowledgedFaults(log)
  expect([1, 2, 3].map((revision) => known(org, revision, digest))).toEqual([true, true, false])
})

test('a fault whose acknowledgement cannot be opened is new', async () => {
  await acknowledge(1)
  await acknowledge(2)
  damaged = 0
  const known = await acknowledgedFaults(log)
  expect([1, 2].map((revision) => known(org, revision, digest))).toEqual([false, true])
})

test('a reconciliation continues after the last one', async () => {
  const found = {
    organizationId: org,
    from: 0,
    through: 7,
    calls: 1,
    differences: 0,
    named: [],
    sums: new Map(),
  }
  const foundation = { eventLog: log, checkpoints: checkpoints as unknown as Foundation['checkpoints'] }
  for (const through of [3, 7])
    await recordReconciled(foundation, [{ ...found, through } as unknown as Reconciled], {
      whole: true,
      actor: 'system',
    })
  damagedStream = reconciledStream(new Date().toISOString())
  damaged = 0
  expect(await lastReconciled(foundation)).toEqual(new Map([[org, 7]]))
})

test.each([0, 1, 2])('the newest act is found although event %i cannot be opened', async (at) => {
  for (let n = 0; n < 3; n++) await rebuildRequested()
  const acts = createActs(log, ['RebuildRequested', 'LogVerified'])
  damaged = at
  expect(await acts.newest('RebuildRequested')).toMatchObject({ revision: at === 2 ? 1 : 2 })
  expect(await acts.newest('LogVerified')).toBeUndefined()
  damaged = -1
  await rebuildRequested()
  await rebuildRequested()
  damaged = 3
  expect(await acts.newest('RebuildRequested')).toMatchObject({ revision: 4 })
})
