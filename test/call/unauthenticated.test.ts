/** Requests without a valid key are logged, but never with more than a few lines. */
import { Writable } from 'node:stream'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createUnauthenticatedRequests } from '../../src/call/unauthenticated.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const listening = () => {
  const lines: Record<string, unknown>[] = []
  const sink = new Writable({
    write: (line: Buffer, _, done) => {
      const { level, msg, reason, requests } = JSON.parse(line.toString())
      lines.push({ level, msg, ...(reason === undefined ? { requests } : { reason }) })
      done()
    },
  })
  return { lines, unauthenticated: createUnauthenticatedRequests(pino({ level: 'info' }, sink)) }
}

test('the first ten in a minute get a line each at level info, the others one line with their number', () => {
  const { lines, unauthenticated } = listening()
  for (let n = 0; n < 1_000; n++)
    unauthenticated.turnedAway(n % 4 === 0 ? 'missing' : 'unknown', { requestId: 'x' })
  expect(lines).toHaveLength(10)
  expect(lines[1]).toEqual({ level: 30, msg: 'not authenticated', reason: 'unknown' })
  vi.advanceTimersByTime(60_000)
  expect(lines).toHaveLength(11)
  expect(lines[10]).toMatchObject({ level: 30, requests: { missing: 247, unknown: 743 } })
  unauthenticated.turnedAway('ended', {})
  expect(lines[11]).toMatchObject({ reason: 'ended' })
  vi.advanceTimersByTime(120_000)
  expect(lines).toHaveLength(12)
})
