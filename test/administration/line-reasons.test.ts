import { expect, test } from 'vitest'
import { lineReasons } from '../../src/administration/ledgers/line-reasons.ts'
import { type EventLog, EventsUnreadable, Unavailable } from '../../src/event-log/port.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'

const organizationId = 'org_01KA0000000000000000000000'
const lines = [{ revision: '3', kind: 'adjustment' }]
const damaged = { stream: `ledger-${organizationId}`, firstRevision: 3, lastRevision: 3, why: 'damaged' }

/** Reads the reasons from a log that fails. No row is needed, because the log is read first. */
const reasonsIf = (failure: Error) => {
  const eventLog = { read: () => Promise.reject(failure) } as unknown as EventLog
  const pool = {} as unknown as Foundation['pool']
  return lineReasons({ eventLog, pool }, { organizationId, role: 'finance' }, lines)
}

test.each([new Unavailable('no connection'), new EventsUnreadable(damaged)])(
  'the lines are shown without reasons if the log cannot be read: $name',
  async (failure) => {
    expect(await reasonsIf(failure)).toBeNull()
  },
)

test('an unexpected failure is not hidden', async () => {
  await expect(reasonsIf(new TypeError('a defect'))).rejects.toThrow('a defect')
})
