/** Concurrent exports are limited. Organizations share the places, which are released however an export ends. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createExports } from '../../src/capabilities/account/export.ts'
import type { EventLog } from '../../src/event-log/port.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const input = { fromRevision: 0, max: 10_000 }
const empty: Pick<EventLog, 'read'> = { read: async () => [] }
const callerOf = (organizationId: string) =>
  ({ key: { organizationId } }) as Parameters<ReturnType<typeof createExports>['gather']>[1]

/** Starts several exports for an organization. In the result, null means no place. */
const gathered = async (exports: ReturnType<typeof createExports>, organizationId: string, count: number) => {
  const found = await Promise.all(
    Array.from({ length: count }, () => exports.gather(input, callerOf(organizationId))),
  )
  return found.filter((one) => one !== 'too_many')
}

test('forty exports of one organization take at most eight places, and another organization still gets a place', async () => {
  const exports = createExports(empty)
  expect(await gathered(exports, 'org_one', 40)).toHaveLength(8)
  expect(await gathered(exports, 'org_two', 1)).toHaveLength(1)
})

test('a place is released when the export was read, when its reader leaves, and when it never begins', async () => {
  const exports = createExports(empty)
  const [read, left, ...others] = await gathered(exports, 'org_one', 8)
  if (read === undefined || left === undefined) throw new Error('no place')
  for await (const _ of exports.stream(read).chunks());
  for await (const _ of exports.stream(left).chunks()) break
  expect(others).toHaveLength(6)
  expect(await gathered(exports, 'org_one', 40)).toHaveLength(2)
  vi.advanceTimersByTime(60_000)
  expect(await gathered(exports, 'org_one', 40)).toHaveLength(8)
})

test('a started export keeps its place, and an export of an unreadable ledger gets no place', async () => {
  let away = false
  const exports = createExports({
    read: async () => {
      if (away) throw new Error('away')
      return []
    },
  })
  const begun = await gathered(exports, 'org_one', 8)
  for (const one of begun) await exports.stream(one).chunks()[Symbol.asyncIterator]().next()
  vi.advanceTimersByTime(60_000)
  expect(await gathered(exports, 'org_one', 40)).toHaveLength(0)
  away = true
  for (let i = 0; i < 20; i++) await expect(gathered(exports, 'org_two', 1)).rejects.toThrow('away')
  away = false
  expect(await gathered(exports, 'org_two', 1)).toHaveLength(1)
})
